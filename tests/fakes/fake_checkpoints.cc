// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/fake_checkpoints.h"

#include "absl/strings/str_cat.h"
#include "worker/io/atomic_file.h"
#include "worker/io/checkpoint_directory.h"

namespace blockswap {
namespace {

constexpr int kFailuresThatEnd = 3;
constexpr int64_t kStateBytes = 64 << 10;
constexpr int64_t kMoreThanAnyDisk = int64_t{1} << 60;

}  // namespace

FakeCheckpoints::FakeCheckpoints(const std::string& output, int64_t full_from, int64_t full_to)
    : directory_(output + "/checkpoints"), full_from_(full_from), full_to_(full_to) {}

void FakeCheckpoints::Resume(worker::ReadyReport& ready) const {
  const auto newest = worker::FindNewestCheckpoint(directory_, &ready.skipped_checkpoints);
  if (!newest.ok()) return;
  ready.start_step = newest->step;
  ready.resumed_from = newest->directory;
}

std::optional<worker::ExitReport> FakeCheckpoints::Save(int64_t step, bool required,
                                                        worker::Reporter& reporter) {
  const bool is_full = step >= full_from_ && step <= full_to_;
  const auto committed = worker::CommitCheckpoint(
      directory_, step, is_full ? kMoreThanAnyDisk : kStateBytes, {},
      [step](const std::string& directory) {
        const std::string state(static_cast<size_t>(kStateBytes),
                                static_cast<char>('a' + step % 26));
        return worker::WriteFileAtomically(directory + "/state.bin", state);
      });
  if (committed.ok()) {
    failures_ = 0;
    last_step_ = step;
    reporter.CheckpointCommitted(step, committed->directory, committed->manifest_sha256,
                                 committed->bytes, 0.001);
    return std::nullopt;
  }
  ++failures_;
  const std::string reason =
      absl::IsResourceExhausted(committed.status()) ? "DISK_FULL" : "SAVE_FAILED";
  const std::string message = absl::StrCat(committed.status().message(),
                                           "; the last good checkpoint is of step ", last_step_);
  if (!required && failures_ < kFailuresThatEnd) {
    reporter.Warning(reason, message);
    return std::nullopt;
  }
  worker::ExitReport report;
  report.code = worker::ExitCode::kStorage;
  report.category = "STORAGE";
  report.reason = reason;
  report.message = message;
  report.step = step;
  return report;
}

}  // namespace blockswap
