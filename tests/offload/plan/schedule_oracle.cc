// SPDX-License-Identifier: Apache-2.0
#include "tests/offload/plan/schedule_oracle.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>

#include "offload/plan/schedule.h"

namespace blockswap::offload {
namespace {

constexpr int kMaxBlocks = 7;
constexpr int kMostTransfersAfterVisit = 2;
constexpr int kWarmupSteps = 3;
constexpr int kMeasuredSteps = 3;

// Where compute and the copy lane are, and when each block on the device can be read.
struct Moment {
  double compute = 0;
  double lane = 0;
  std::array<double, kMaxBlocks> ready = {};
};

bool NoLater(const Moment& a, const Moment& b) {
  if (a.compute > b.compute || a.lane > b.lane) return false;
  for (size_t i = 0; i < a.ready.size(); ++i) {
    if (a.ready[i] > b.ready[i]) return false;
  }
  return true;
}

using Mask = unsigned;
using States = std::map<Mask, std::vector<Moment>>;  // by blocks on the device; none dominated

void Offer(Mask mask, Moment moment, States& states) {
  // What has happened is past: only what is still to come tells moments apart.
  moment.lane = std::max(moment.lane, moment.compute);
  for (double& ready : moment.ready) ready = std::max(ready, moment.compute);
  std::vector<Moment>& moments = states[mask];
  for (const Moment& other : moments) {
    if (NoLater(other, moment)) return;
  }
  moments.erase(std::remove_if(moments.begin(), moments.end(),
                               [&](const Moment& other) { return NoLater(moment, other); }),
                moments.end());
  moments.push_back(moment);
}

// Slots of fixed sizes; a block uses those of its own class, or none (class -1: resident).
struct Slots {
  std::vector<int> class_of;
  std::vector<int> count;
};

void Transfer(Mask mask, const Moment& moment, int depth, const Slots& slots,
              const BlockCosts& costs, States& states) {
  Offer(mask, moment, states);
  if (depth == kMostTransfersAfterVisit) return;
  const int num_blocks = static_cast<int>(slots.class_of.size());
  for (int load = 0; load < num_blocks; ++load) {
    if ((mask >> load & 1) != 0) continue;
    for (int evict = 0; evict < num_blocks; ++evict) {
      if ((mask >> evict & 1) == 0 || slots.class_of[evict] != slots.class_of[load]) continue;
      if (moment.ready[evict] > moment.compute) continue;  // still coming: it would be for nothing
      Moment next = moment;
      next.lane = std::max(moment.lane, moment.compute) + costs.h2d[load];
      next.ready[load] = next.lane;
      next.ready[evict] = 0;
      Transfer((mask & ~(1u << evict)) | 1u << load, next, depth + 1, slots, costs, states);
    }
  }
}

States AllStarts(const Slots& slots) {
  States states;
  const int num_blocks = static_cast<int>(slots.class_of.size());
  for (Mask mask = 0; mask < 1u << num_blocks; ++mask) {
    std::vector<int> used(slots.count.size(), 0);
    bool residents_are_in = true;
    for (int block = 0; block < num_blocks; ++block) {
      const bool in = (mask >> block & 1) != 0;
      if (slots.class_of[block] < 0) {
        residents_are_in = residents_are_in && in;
      } else if (in) {
        ++used[slots.class_of[block]];
      }
    }
    if (residents_are_in && used == slots.count) states[mask] = {Moment{}};
  }
  return states;
}

double Earliest(const States& states) {
  double earliest = std::numeric_limits<double>::infinity();
  for (const auto& [mask, moments] : states) {
    for (const Moment& moment : moments) earliest = std::min(earliest, moment.compute);
  }
  return earliest;
}

double SteadyStep(const Slots& slots, const BlockCosts& costs) {
  const int num_blocks = static_cast<int>(slots.class_of.size());
  const std::vector<int> visits = Visits(PassKind::kTraining, num_blocks, 1);
  States states = AllStarts(slots);
  double warm = 0;
  for (int step = 0; step < kWarmupSteps + kMeasuredSteps; ++step) {
    if (step == kWarmupSteps) warm = Earliest(states);
    for (size_t visit = 0; visit < visits.size(); ++visit) {
      const int block = visits[visit];
      const bool backward = visit >= visits.size() / 2;
      States next;
      for (const auto& [mask, moments] : states) {
        if ((mask >> block & 1) == 0) continue;
        for (Moment moment : moments) {
          moment.compute = std::max(moment.compute, moment.ready[block]) +
                           (backward ? costs.backward[block] : costs.forward[block]);
          Transfer(mask, moment, 0, slots, costs, next);
        }
      }
      states = std::move(next);
    }
  }
  return (Earliest(states) - warm) / kMeasuredSteps;
}

// The sizes of slots that `limits` allows, for the blocks that are not resident.
struct Case {
  const std::vector<int64_t>* bytes;
  Mask residents;
  std::vector<int64_t> limits;  // capacity of each class, ascending
};

void CountSlots(const Case& item, int64_t bytes_left, const BlockCosts& costs, size_t index,
                Slots& slots, double* best) {
  std::vector<int> members(item.limits.size(), 0);
  for (const int slot_class : slots.class_of) {
    if (slot_class >= 0) ++members[static_cast<size_t>(slot_class)];
  }
  if (index == item.limits.size()) {
    for (size_t i = 0; i < item.limits.size(); ++i) {
      // More slots are never slower: only what cannot have another one is tried.
      if (slots.count[i] < members[i] && item.limits[i] <= bytes_left) return;
    }
    *best = std::min(*best, SteadyStep(slots, costs));
    return;
  }
  for (int count = 1; count <= members[index] && count * item.limits[index] <= bytes_left;
       ++count) {
    slots.count[index] = count;
    CountSlots(item, bytes_left - count * item.limits[index], costs, index + 1, slots, best);
  }
}

// Every way to divide the sizes of what is not resident into ranges, one class of slots each.
void DivideSizes(const std::vector<int64_t>& bytes, Mask residents, int64_t bytes_left,
                 const BlockCosts& costs, double* best) {
  std::set<int64_t> distinct;
  for (size_t block = 0; block < bytes.size(); ++block) {
    if ((residents >> block & 1) == 0) distinct.insert(bytes[block]);
  }
  const std::vector<int64_t> sizes(distinct.begin(), distinct.end());
  for (Mask cuts = 0; cuts < 1u << (sizes.empty() ? 0 : sizes.size() - 1); ++cuts) {
    Case item{&bytes, residents, {}};
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (i + 1 == sizes.size() || (cuts >> i & 1) != 0) item.limits.push_back(sizes[i]);
    }
    Slots slots{std::vector<int>(bytes.size(), -1), std::vector<int>(item.limits.size(), 0)};
    bool absorbed = false;
    for (size_t block = 0; block < bytes.size(); ++block) {
      const auto limit = std::lower_bound(item.limits.begin(), item.limits.end(), bytes[block]);
      if ((residents >> block & 1) == 0) {
        slots.class_of[block] = static_cast<int>(limit - item.limits.begin());
      } else if (limit != item.limits.end() && *limit == bytes[block]) {
        absorbed = true;  // a slot of that size more is the same memory and can do all that it can
      }
    }
    if (!absorbed) CountSlots(item, bytes_left, costs, 0, slots, best);
  }
}

}  // namespace

double FastestStep(const std::vector<int64_t>& block_bytes, int64_t weight_bytes,
                   const BlockCosts& costs) {
  double best = std::numeric_limits<double>::infinity();
  for (Mask residents = 0; residents < 1u << block_bytes.size(); ++residents) {
    int64_t left = weight_bytes;
    for (size_t block = 0; block < block_bytes.size(); ++block) {
      if ((residents >> block & 1) != 0) left -= block_bytes[block];
    }
    if (left >= 0) DivideSizes(block_bytes, residents, left, costs, &best);
  }
  return best;
}

}  // namespace blockswap::offload
