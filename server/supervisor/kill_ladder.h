// SPDX-License-Identifier: Apache-2.0
// How a worker is stopped: ask (or have a stalled one print its stacks), wait, SIGTERM, wait,
// SIGKILL, wait, give up.
#ifndef BLOCKSWAP_SERVER_SUPERVISOR_KILL_LADDER_H_
#define BLOCKSWAP_SERVER_SUPERVISOR_KILL_LADDER_H_

#include <chrono>
#include <optional>
#include <vector>

#include "server/base/wall_clock.h"
#include "server/jobs/job.h"

namespace blockswap::server {

struct KillLadderOptions {
  std::chrono::milliseconds grace{30000};      // a checkpoint is written in it
  std::chrono::milliseconds now_grace{2000};   // asked to stop without one
  std::chrono::milliseconds terminate{10000};  // between SIGTERM and SIGKILL
  std::chrono::milliseconds kill{60000};       // after SIGKILL: stuck in the kernel
  std::chrono::milliseconds dump{2000};        // for the stacks of a stalled worker
};

enum class LadderAction { kSendStop, kDumpStacks, kTerminate, kKill, kGiveUp };

// Plain state machine without threads: the owner performs the actions it is handed.
class KillLadder final {
 public:
  explicit KillLadder(KillLadderOptions options) : options_(options) {}

  // Climbs on, never back: a second request that is no stronger changes nothing. kNone starts at
  // SIGTERM without asking.
  std::vector<LadderAction> Begin(StopMode mode, SteadyTime now);
  // For a worker that hangs: its stacks first, then as Begin(kNone).
  std::vector<LadderAction> BeginStalled(SteadyTime now);
  // The least grace is that of the options: a worker whose checkpoints take longer gets more.
  void AllowForCheckpoint(double seconds);
  std::chrono::milliseconds grace() const { return options_.grace; }
  // The action that is due, if any.
  std::optional<LadderAction> Due(SteadyTime now);

  bool begun() const { return rung_ != Rung::kIdle; }
  StopMode mode() const { return mode_; }
  std::optional<SteadyTime> deadline() const { return deadline_; }

 private:
  enum class Rung { kIdle, kAsked, kDumping, kTerminated, kKilled, kGivenUp };

  KillLadderOptions options_;
  Rung rung_ = Rung::kIdle;
  StopMode mode_ = StopMode::kNone;
  std::optional<SteadyTime> deadline_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SUPERVISOR_KILL_LADDER_H_
