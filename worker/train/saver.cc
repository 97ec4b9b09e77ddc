// SPDX-License-Identifier: Apache-2.0
#include "worker/train/saver.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "offload/base/status_macros.h"
#include "worker/io/checkpoint_directory.h"
#include "worker/kernels/torch_boundary.h"
#include "worker/train/failure.h"

namespace blockswap::worker {
namespace {

constexpr int kFailuresThatEnd = 3;

}  // namespace

Saver::Saver(const JobInspection* job, LoadedJob* loaded, const OutputDirectory* output,
             MetricsLog* metrics, Reporter* reporter)
    : job_(job), loaded_(loaded), output_(output), metrics_(metrics), reporter_(reporter) {}

absl::Status Saver::SaveCheckpoint(const CheckpointProperties& properties, bool required) {
  reporter_->Phase("checkpoint");
  absl::Status saved = RunContained([&] { return CommitState(properties); });
  if (saved.ok()) last_checkpoint_step_ = properties.counters.step;
  return Judge(std::move(saved), required);
}

absl::Status Saver::SaveAdapterOfStep(const TrainingCounters& counters, absl::Time started) {
  return Judge(SaveAdapterFile(counters, started, output_->adapter_file_of_step(counters.step)),
               /*required=*/false);
}

absl::Status Saver::SaveFinalAdapter(const TrainingCounters& counters, absl::Time started) {
  return Judge(SaveAdapterFile(counters, started, output_->adapter_file()), /*required=*/true);
}

absl::Status Saver::CommitState(const CheckpointProperties& properties) {
  const absl::Time begin = absl::Now();
  // The checkpoint may not know of steps that the metrics have lost.
  BLOCKSWAP_RETURN_IF_ERROR(metrics_->Sync());
  BLOCKSWAP_ASSIGN_OR_RETURN(
      const CommittedCheckpoint committed,
      CommitCheckpoint(
          output_->checkpoints(), properties.counters.step, loaded_->trained().StateBytes(),
          ToProperties(properties),
          [&](const std::string& directory) { return loaded_->trained().WriteState(directory); }));
  reporter_->CheckpointCommitted(committed.step, committed.directory, committed.manifest_sha256,
                                 committed.bytes, absl::ToDoubleSeconds(absl::Now() - begin));
  const absl::Status pruned =
      PruneCheckpoints(output_->checkpoints(), job_->config.output.keep_checkpoints);
  if (!pruned.ok()) reporter_->Warning("PRUNE_FAILED", std::string(pruned.message()));
  return absl::OkStatus();
}

absl::Status Saver::SaveAdapterFile(const TrainingCounters& counters, absl::Time started,
                                    const std::string& path) const {
  return RunContained([&] {
    return loaded_->trained().WriteResult({counters.step, counters.epoch, started, absl::Now()},
                                          path);
  });
}

absl::Status Saver::Judge(absl::Status saved, bool required) {
  if (saved.ok()) {
    failures_in_a_row_ = 0;
    return saved;
  }
  ++failures_in_a_row_;
  const bool disk_full = saved.code() == absl::StatusCode::kResourceExhausted;
  const bool is_storage = ToExitReport(saved).code != ExitCode::kNumerics;
  if (!is_storage) return saved;
  const char* reason = disk_full ? "DISK_FULL" : "SAVE_FAILED";
  if (!required && failures_in_a_row_ < kFailuresThatEnd) {
    reporter_->Warning(
        reason,
        absl::StrCat(saved.message(), "; training goes on, the last good checkpoint is of step ",
                     last_checkpoint_step_));
    return absl::OkStatus();
  }
  return WithFailure(
      absl::Status(saved.code(),
                   absl::StrCat(saved.message(), "; the last good checkpoint is of step ",
                                last_checkpoint_step_, ", free space and resume")),
      ExitCode::kStorage, reason);
}

}  // namespace blockswap::worker
