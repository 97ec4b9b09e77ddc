// SPDX-License-Identifier: Apache-2.0
#include "worker/train/metrics_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "worker/io/atomic_file.h"

namespace blockswap::worker {
namespace {

// The step a line is about, or -1 when it is no line of ours.
int64_t StepOfLine(const std::string& line) {
  const nlohmann::json parsed = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object() || !parsed.contains("step") || !parsed["step"].is_number_integer())
    return -1;
  return parsed["step"].get<int64_t>();
}

std::string KeptLines(const std::string& path, int64_t last_step) {
  std::ifstream in(path);
  std::string kept, line;
  int64_t previous = 0;
  while (std::getline(in, line)) {
    const int64_t step = StepOfLine(line);
    if (step <= previous || step > last_step) continue;
    absl::StrAppend(&kept, line, "\n");
    previous = step;
  }
  return kept;
}

nlohmann::ordered_json NumberOrNull(double value) {
  if (!std::isfinite(value)) return nullptr;
  return value;
}

}  // namespace

std::string MetricsLine(const StepMetrics& metrics) {
  const StepReport& report = metrics.report;
  const offload::SwapStats& now = report.swap;
  const offload::SwapStats& before = metrics.before;
  const absl::Duration stall =
      (now.forward_stall - before.forward_stall) + (now.backward_stall - before.backward_stall);
  nlohmann::ordered_json line;
  line["step"] = report.step;
  line["epoch"] = report.epoch;
  line["loss"] = NumberOrNull(report.loss);
  line["learning_rate"] = report.learning_rate;
  line["grad_norm"] = NumberOrNull(report.grad_norm);
  line["seconds"] = report.seconds;
  line["samples"] = report.samples;
  line["h2d_bytes"] = now.h2d_bytes - before.h2d_bytes;
  line["d2h_bytes"] = now.d2h_bytes - before.d2h_bytes;
  line["stall_seconds"] = absl::ToDoubleSeconds(stall);
  line["hits"] = now.hits - before.hits;
  line["late"] = now.late - before.late;
  line["misses"] = now.misses - before.misses;
  line["device_bytes_peak"] = report.device_bytes_peak;
  for (const auto& [phase, seconds] : report.phase_seconds) line["phase_seconds"][phase] = seconds;
  if (metrics.skipped) line["skipped"] = true;
  return line.dump();
}

absl::StatusOr<std::unique_ptr<MetricsLog>> MetricsLog::Open(const std::string& path,
                                                             int64_t last_step) {
  const std::string kept = KeptLines(path, last_step);
  BLOCKSWAP_RETURN_IF_ERROR(WriteFileAtomically(path, kept));
  const int descriptor = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) {
    return absl::InternalError(absl::StrCat("cannot open ", path, ": ", std::strerror(errno)));
  }
  return std::unique_ptr<MetricsLog>(
      new MetricsLog(path, descriptor, static_cast<int64_t>(kept.size())));
}

MetricsLog::~MetricsLog() {
  Flush().IgnoreError();  // the trainer has reported it at the last Append
  close(descriptor_);
}

absl::Status MetricsLog::Append(const std::string& line) {
  absl::StrAppend(&waiting_, line, "\n");
  return Flush();
}

absl::Status MetricsLog::Sync() {
  BLOCKSWAP_RETURN_IF_ERROR(Flush());
  if (fsync(descriptor_) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot force ", path_, " to disk: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::Status MetricsLog::Flush() {
  size_t written = 0;
  while (written < waiting_.size()) {
    const ssize_t count = pwrite(descriptor_, waiting_.data() + written, waiting_.size() - written,
                                 static_cast<off_t>(end_) + static_cast<off_t>(written));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const std::string why = std::strerror(count == 0 ? ENOSPC : errno);
      // A half line would be read as damage; if even this fails, the next resume drops it.
      if (ftruncate(descriptor_, static_cast<off_t>(end_)) != 0) written = 0;
      return absl::ResourceExhaustedError(absl::StrCat("cannot write ", waiting_.size(),
                                                       " bytes to ", path_, ": ", why,
                                                       "; they are kept and written later"));
    }
    written += static_cast<size_t>(count);
  }
  end_ += static_cast<int64_t>(waiting_.size());
  waiting_.clear();
  return absl::OkStatus();
}

}  // namespace blockswap::worker
