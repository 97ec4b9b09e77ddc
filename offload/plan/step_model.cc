// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/step_model.h"

#include <algorithm>
#include <numeric>

namespace blockswap::offload {
namespace {

// Enough cycles for the lanes to settle before one is measured.
constexpr int kWarmupCycles = 3;
constexpr int kMeasuredCycles = 3;

struct SpareBuffer {
  int64_t bytes = 0;
  double read = 0;  // when the block that left it had come up
};

struct LaneState {
  std::vector<double> ready;       // per block: when its load ends; resident blocks stay at 0
  std::vector<double> boundary;    // per block: when its saved input has gone down, then come back
  std::vector<SpareBuffer> spare;  // the one that was freed first comes first
  double compute = 0;
  double h2d = 0;
  double d2h = 0;
  double visit_began = 0;
  double compute_busy = 0;
  double h2d_busy = 0;
};

// When the buffer that `block` goes down to may be written; it is spare no longer.
double TakeSpare(int block, const BlockCosts& costs, LaneState& state) {
  if (costs.host_buffer.empty()) return 0;
  const int64_t bytes = costs.host_buffer[block];
  const auto found = std::find_if(state.spare.begin(), state.spare.end(),
                                  [&](const SpareBuffer& b) { return b.bytes == bytes; });
  if (found == state.spare.end()) return 0;
  const double read = found->read;
  state.spare.erase(found);
  return read;
}

void RunTransfer(const Transfer& transfer, TransferMode mode, const BlockCosts& costs,
                 LaneState& state) {
  double start = std::max(state.h2d, state.compute);
  if (mode == TransferMode::kExchange) {
    // The block that leaves may itself have arrived only now.
    const double leave = std::max({state.d2h, state.compute, state.ready[transfer.evict],
                                   TakeSpare(transfer.evict, costs, state)});
    state.d2h = leave + costs.d2h[transfer.evict];
    start = std::max(start, state.d2h);
  }
  state.h2d = start + costs.h2d[transfer.load];
  state.h2d_busy += costs.h2d[transfer.load];
  state.ready[transfer.load] = state.h2d;
  if (mode == TransferMode::kExchange && !costs.host_buffer.empty()) {
    state.spare.push_back({costs.host_buffer[transfer.load], state.h2d});
  }
}

// After a visit its own saved input goes down, or the one of the next backward visit comes back.
void MoveBoundaries(const TransferSchedule& schedule, const std::vector<bool>& backward, int visit,
                    const BlockCosts& costs, LaneState& state) {
  const int block = schedule.visits[visit];
  if (!backward[visit] && costs.boundary_d2h[block] > 0) {
    state.d2h = std::max(state.d2h, state.compute) + costs.boundary_d2h[block];
    state.boundary[block] = state.d2h;
  }
  const size_t next = static_cast<size_t>(visit) + 1;
  if (next >= schedule.visits.size() || !backward[next]) return;
  const int coming = schedule.visits[next];
  if (costs.boundary_h2d[coming] <= 0) return;
  // It was sent for when the visit before this one had ended: one visit ahead.
  state.h2d =
      std::max({state.h2d, state.visit_began, state.boundary[coming]}) + costs.boundary_h2d[coming];
  state.h2d_busy += costs.boundary_h2d[coming];
  state.boundary[coming] = state.h2d;
}

void RunCycle(const TransferSchedule& schedule, const std::vector<bool>& backward,
              TransferMode mode, const BlockCosts& costs, LaneState& state) {
  const bool moves_boundaries = !costs.boundary_h2d.empty();
  size_t next = 0;
  for (int visit = 0; visit < static_cast<int>(schedule.visits.size()); ++visit) {
    const int block = schedule.visits[visit];
    const double cost = backward[visit] ? costs.backward[block] : costs.forward[block];
    double start = std::max(state.compute, state.ready[block]);
    if (moves_boundaries && backward[visit]) start = std::max(start, state.boundary[block]);
    state.visit_began = start;
    state.compute = start + cost;
    state.compute_busy += cost;
    if (moves_boundaries) MoveBoundaries(schedule, backward, visit, costs, state);
    for (; next < schedule.transfers.size() && schedule.transfers[next].after_visit == visit;
         ++next) {
      RunTransfer(schedule.transfers[next], mode, costs, state);
    }
  }
}

}  // namespace

std::vector<bool> BackwardVisits(const TransferSchedule& schedule, PassKind kind, int num_blocks) {
  std::vector<bool> backward(schedule.visits.size(), false);
  if (kind == PassKind::kForwardOnly) return backward;
  std::vector<bool> seen(static_cast<size_t>(num_blocks), false);
  for (size_t visit = 0; visit < schedule.visits.size(); ++visit) {
    const size_t block = static_cast<size_t>(schedule.visits[visit]);
    backward[visit] = seen[block];
    seen[block] = !seen[block];
  }
  return backward;
}

CycleTimes SimulateCycle(const TransferSchedule& schedule, PassKind kind, TransferMode mode,
                         const BlockCosts& costs) {
  const int num_blocks = static_cast<int>(costs.forward.size());
  const std::vector<bool> backward = BackwardVisits(schedule, kind, num_blocks);
  LaneState state;
  state.ready.assign(costs.forward.size(), 0.0);
  state.boundary.assign(costs.forward.size(), 0.0);
  for (const int64_t bytes : costs.spare_buffers) state.spare.push_back({bytes, 0.0});
  for (int i = 0; i < kWarmupCycles; ++i) RunCycle(schedule, backward, mode, costs, state);
  const LaneState before = state;
  for (int i = 0; i < kMeasuredCycles; ++i) RunCycle(schedule, backward, mode, costs, state);
  CycleTimes times;
  times.cycle = (state.compute - before.compute) / kMeasuredCycles;
  times.compute = (state.compute_busy - before.compute_busy) / kMeasuredCycles;
  times.copy = (state.h2d_busy - before.h2d_busy) / kMeasuredCycles;
  times.stall = std::max(0.0, times.cycle - times.compute);
  return times;
}

double EvenSpacingBound(const TransferSchedule& schedule, PassKind kind, const BlockCosts& costs) {
  const std::vector<bool> backward =
      BackwardVisits(schedule, kind, static_cast<int>(costs.forward.size()));
  double compute[2] = {0, 0};
  double copy[2] = {0, 0};
  for (size_t visit = 0; visit < schedule.visits.size(); ++visit) {
    const int block = schedule.visits[visit];
    compute[backward[visit]] += backward[visit] ? costs.backward[block] : costs.forward[block];
  }
  for (const Transfer& transfer : schedule.transfers) {
    copy[backward[transfer.after_visit]] += costs.h2d[transfer.load];
  }
  return std::max(compute[0], copy[0]) + std::max(compute[1], copy[1]);
}

double FlushedRingBound(const std::vector<int>& streamed, PassKind kind, const BlockCosts& costs) {
  double copy = 0;
  for (const int block : streamed) copy += costs.h2d[static_cast<size_t>(block)];
  double bound = std::max(copy, std::accumulate(costs.forward.begin(), costs.forward.end(), 0.0));
  if (kind == PassKind::kTraining) {
    bound += std::max(copy, std::accumulate(costs.backward.begin(), costs.backward.end(), 0.0));
  }
  return bound;
}

double TailPlacementBound(int streamed, PassKind kind, const BlockCosts& costs) {
  const int num_blocks = static_cast<int>(costs.forward.size());
  double total = 0;
  for (int block = 0; block < num_blocks; ++block) {
    const double copy = block >= num_blocks - streamed ? costs.h2d[block] : 0.0;
    total += std::max(costs.forward[block], copy);
    if (kind == PassKind::kTraining) total += std::max(costs.backward[block], copy);
  }
  return total;
}

}  // namespace blockswap::offload
