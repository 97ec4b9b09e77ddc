// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/dcgm_job_mapping.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "offload/base/status_macros.h"
#include "server/base/unique_fd.h"

namespace blockswap::server {
namespace {

constexpr char kGpuPrefix[] = "cuda-";

absl::Status CannotWrite(const std::string& path) {
  return absl::UnavailableError(
      absl::StrCat("cannot write the job mapping ", path, ": ", std::strerror(errno)));
}

}  // namespace

absl::Status DcgmJobMapping::Update(const std::vector<SlotMetrics::Worker>& workers) {
  std::map<std::string, std::string> wanted;
  for (const auto& [gpu, jobs] : written_) wanted[gpu] = "";
  for (const SlotMetrics::Worker& worker : workers) {
    if (!absl::StartsWith(worker.gpu, kGpuPrefix)) continue;  // the host device is no GPU
    // "0", or "0.7" for the GPU instance 7 (MIG) of it, whatever that is divided into.
    const std::vector<std::string> parts =
        absl::StrSplit(worker.gpu.substr(std::strlen(kGpuPrefix)), '-');
    const std::string gpu = parts.size() < 3 ? parts[0] : absl::StrCat(parts[0], ".", parts[2]);
    // One line a job, where several share the GPU.
    absl::StrAppend(&wanted[gpu], worker.job, "\n");
  }
  for (const auto& [gpu, jobs] : wanted) {
    const auto found = written_.find(gpu);
    if (found != written_.end() && found->second == jobs) continue;
    BLOCKSWAP_RETURN_IF_ERROR(Write(gpu, jobs));
    written_[gpu] = jobs;
  }
  return absl::OkStatus();
}

absl::Status DcgmJobMapping::Write(const std::string& gpu, const std::string& jobs) const {
  const std::string path = absl::StrCat(directory_, "/", gpu);
  // The exporter reads every file whose name is a number: this one is none.
  const std::string temporary = absl::StrCat(directory_, "/.", gpu, ".new");
  // For everyone: the exporter runs as somebody else.
  UniqueFd file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file.valid() ||
      ::write(file.get(), jobs.data(), jobs.size()) != static_cast<ssize_t>(jobs.size())) {
    return CannotWrite(temporary);
  }
  file.Reset();
  if (::rename(temporary.c_str(), path.c_str()) != 0) return CannotWrite(path);
  return absl::OkStatus();
}

Collector::Read WriteDcgmJobMapping(std::string directory, const SlotMetrics& slots) {
  auto mapping = std::make_shared<DcgmJobMapping>(std::move(directory));
  return [mapping, &slots]() -> absl::StatusOr<Collector::Families> {
    BLOCKSWAP_RETURN_IF_ERROR(mapping->Update(slots.Workers()));
    return Collector::Families();
  };
}

}  // namespace blockswap::server
