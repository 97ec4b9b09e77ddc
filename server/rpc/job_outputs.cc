// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/job_outputs.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "offload/base/status_macros.h"
#include "server/base/file_lock.h"

namespace blockswap::server {
namespace {

namespace fs = std::filesystem;

constexpr size_t kUidPart = 8;
// The worker's own mark of whose results a directory holds: a checkpoint without it is a
// stranger's.
constexpr char kOwnerFile[] = "job.json";

absl::Status Cannot(const char* what, const std::string& path, const std::error_code& error) {
  return absl::FailedPreconditionError(
      absl::StrCat("cannot ", what, " ", path, ": ", error.message()));
}

// The part of `path` behind the directory; empty when it is not in it.
std::string Below(const std::string& path, const std::string& directory) {
  const std::string clean = fs::path(path).lexically_normal().string();
  absl::string_view rest = clean;
  if (!absl::ConsumePrefix(&rest, absl::StrCat(directory, "/"))) return std::string();
  return std::string(rest);
}

absl::Status LinkFile(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_hard_link(from, to, error);
  if (!error) return absl::OkStatus();
  error.clear();
  fs::copy_file(from, to, error);
  return error ? Cannot("copy", from.string(), error) : absl::OkStatus();
}

absl::Status LinkTree(const fs::path& from, const fs::path& to) {
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(from, error))) return LinkFile(from, to);
  fs::create_directories(to, error);
  if (error) return Cannot("make", to.string(), error);
  for (const auto& entry : fs::directory_iterator(from, error)) {
    // A checkpoint holds plain files only.
    if (!entry.is_regular_file(error) || entry.is_symlink(error)) continue;
    BLOCKSWAP_RETURN_IF_ERROR(LinkFile(entry.path(), to / entry.path().filename()));
  }
  return error ? Cannot("read", from.string(), error) : absl::OkStatus();
}

}  // namespace

std::string NewOutputDirectory(const std::string& root, const JobRecord& job) {
  const std::string plain = absl::StrCat(root, "/", job.id);
  std::error_code error;
  if (!fs::exists(fs::symlink_status(plain, error))) return plain;
  return absl::StrCat(plain, "-", job.uid.substr(0, kUidPart));
}

std::vector<CheckpointRecord> OnDisk(std::vector<CheckpointRecord> checkpoints) {
  const auto is_gone = [](const CheckpointRecord& checkpoint) {
    std::error_code error;
    return !fs::exists(checkpoint.directory, error);
  };
  checkpoints.erase(std::remove_if(checkpoints.begin(), checkpoints.end(), is_gone),
                    checkpoints.end());
  return checkpoints;
}

absl::Status HandOnCheckpoint(const JobRecord& from, const CheckpointRecord& checkpoint,
                              const JobRecord& to) {
  const std::string place = Below(checkpoint.directory, from.output_directory);
  if (place.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("the checkpoint of step ", checkpoint.step,
                                                      " of job ", from.id,
                                                      " lies outside the job's output directory"));
  }
  BLOCKSWAP_RETURN_IF_ERROR(MakeDirectory(to.output_directory, 0700));
  absl::Cleanup undo = [&to] { RemoveOutputs(to).IgnoreError(); };  // the first error is the answer
  const fs::path target = fs::path(to.output_directory) / place;
  std::error_code error;
  fs::create_directories(target.parent_path(), error);
  if (error) return Cannot("make", target.parent_path().string(), error);
  BLOCKSWAP_RETURN_IF_ERROR(LinkTree(checkpoint.directory, target));
  const fs::path owner = fs::path(from.output_directory) / kOwnerFile;
  if (fs::is_regular_file(fs::symlink_status(owner, error))) {
    // A copy: either job may write its own anew.
    fs::copy_file(owner, fs::path(to.output_directory) / kOwnerFile, error);
    if (error) return Cannot("copy", owner.string(), error);
  }
  std::move(undo).Cancel();
  return absl::OkStatus();
}

absl::Status RemoveCheckpoint(const JobRecord& job, const CheckpointRecord& checkpoint) {
  if (Below(checkpoint.directory, job.output_directory).empty()) {
    return absl::FailedPreconditionError(absl::StrCat("the checkpoint of step ", checkpoint.step,
                                                      " lies outside the job's output directory"));
  }
  std::error_code error;
  fs::remove_all(checkpoint.directory, error);
  return error ? Cannot("remove", checkpoint.directory, error) : absl::OkStatus();
}

absl::Status RemoveLogs(const JobRecord& job) {
  std::error_code error;
  std::vector<fs::path> logs;
  for (const auto& entry : fs::directory_iterator(job.output_directory, error)) {
    const std::string name = entry.path().filename().string();
    if (absl::StartsWith(name, "attempt-") && absl::StrContains(name, ".log")) {
      logs.push_back(entry.path());
    }
  }
  for (const fs::path& log : logs) {
    fs::remove(log, error);
    if (error) return Cannot("remove", log.string(), error);
  }
  // Gone with the last of it: a directory with nothing in it is of no use.
  fs::remove(job.output_directory, error);
  return absl::OkStatus();
}

absl::Status RemoveOutputs(const JobRecord& job) {
  std::error_code error;
  fs::remove_all(job.output_directory, error);
  return error ? Cannot("remove", job.output_directory, error) : absl::OkStatus();
}

}  // namespace blockswap::server
