// SPDX-License-Identifier: Apache-2.0
#include "server/supervisor/kill_ladder.h"

#include <algorithm>

namespace blockswap::server {

std::vector<LadderAction> KillLadder::Begin(StopMode mode, SteadyTime now) {
  if (mode == StopMode::kNone) {
    if (rung_ > Rung::kDumping) return {};
    rung_ = Rung::kTerminated;
    deadline_ = now + options_.terminate;
    return {LadderAction::kTerminate};
  }
  const bool stronger =
      rung_ == Rung::kIdle ||
      (rung_ == Rung::kAsked && mode == StopMode::kNow && mode_ != StopMode::kNow) ||
      // Cancelling a job that is being suspended changes what the worker exits with.
      (rung_ == Rung::kAsked && mode == StopMode::kGraceful && mode_ == StopMode::kSuspend);
  if (!stronger) return {};
  rung_ = Rung::kAsked;
  mode_ = mode;
  deadline_ = now + (mode == StopMode::kNow ? options_.now_grace : options_.grace);
  return {LadderAction::kSendStop};
}

std::vector<LadderAction> KillLadder::BeginStalled(SteadyTime now) {
  if (rung_ != Rung::kIdle) return {};
  rung_ = Rung::kDumping;
  deadline_ = now + options_.dump;
  return {LadderAction::kDumpStacks};
}

void KillLadder::AllowForCheckpoint(double seconds) {
  // A measured time may double when the disk is busy.
  constexpr double kReserve = 2;
  const auto needed = std::chrono::milliseconds(static_cast<int64_t>(seconds * kReserve * 1000));
  options_.grace = std::max(options_.grace, needed);
}

std::optional<LadderAction> KillLadder::Due(SteadyTime now) {
  if (!deadline_.has_value() || now < *deadline_) return std::nullopt;
  switch (rung_) {
    case Rung::kAsked:
    case Rung::kDumping:
      rung_ = Rung::kTerminated;
      deadline_ = now + options_.terminate;
      return LadderAction::kTerminate;
    case Rung::kTerminated:
      rung_ = Rung::kKilled;
      deadline_ = now + options_.kill;
      return LadderAction::kKill;
    case Rung::kKilled:
      rung_ = Rung::kGivenUp;
      deadline_.reset();
      return LadderAction::kGiveUp;
    case Rung::kIdle:
    case Rung::kGivenUp:
      break;
  }
  return std::nullopt;
}

}  // namespace blockswap::server
