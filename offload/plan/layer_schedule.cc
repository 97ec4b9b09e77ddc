// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/layer_schedule.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "offload/plan/layer_placement.h"

namespace blockswap::offload {
namespace {

int64_t UnitBytes(const LayerUnit& unit, const std::vector<BlockProfile>& blocks) {
  return blocks[static_cast<size_t>(unit.block)].layers[static_cast<size_t>(unit.layer)].bytes;
}

// A cycle as the trainer walks it: units and, before each, the compute of what needs none.
struct Walk {
  std::vector<int> units;
  std::vector<double> lead;     // seconds of resident blocks before the visit
  std::vector<double> compute;  // seconds of the visit
  double tail = 0;              // after the last visit
};

class Walker {
 public:
  Walker(const LayerWindowRequest& request, const std::vector<LayerUnit>& units)
      : request_(request), first_unit_(request.blocks->size(), -1) {
    for (int unit = 0; unit < static_cast<int>(units.size()); ++unit) {
      int& first = first_unit_[static_cast<size_t>(units[static_cast<size_t>(unit)].block)];
      if (first < 0) first = unit;
    }
  }

  Walk Cycle(PassKind kind) const {
    TransferSchedule visits;
    visits.visits =
        kind == PassKind::kTraining ? request_.training_visits : request_.forward_only_visits;
    const std::vector<bool> backward =
        BackwardVisits(visits, kind, static_cast<int>(request_.blocks->size()));
    Walk walk;
    for (size_t visit = 0; visit < visits.visits.size(); ++visit) {
      AddBlock(visits.visits[visit], backward[visit], walk);
    }
    return walk;
  }

 private:
  // Costs of blocks, in units of computing with one byte where nobody said anything.
  double Seconds(const std::vector<double>& costs, int block) const {
    return costs.empty() ? static_cast<double>((*request_.blocks)[static_cast<size_t>(block)].bytes)
                         : costs[static_cast<size_t>(block)];
  }

  void AddBlock(int block, bool backward, Walk& walk) const {
    const BlockProfile& profile = (*request_.blocks)[static_cast<size_t>(block)];
    const double seconds =
        Seconds(backward ? request_.costs.backward : request_.costs.forward, block);
    const int first = first_unit_[static_cast<size_t>(block)];
    const std::vector<int>& order = backward ? profile.backward_layers : profile.forward_layers;
    if (first < 0 || order.empty()) {
      walk.tail += seconds;
      return;
    }
    double bytes = 0;
    for (int layer : order) bytes += static_cast<double>(Bytes(profile, layer));
    for (int repeat = 0; repeat < request_.repeats; ++repeat) {
      for (int layer : order) {
        const double cost =
            seconds * static_cast<double>(Bytes(profile, layer)) / bytes / request_.repeats;
        AddVisit(first + layer, cost, walk);
      }
    }
  }

  static int64_t Bytes(const BlockProfile& profile, int layer) {
    return profile.layers[static_cast<size_t>(layer)].bytes;
  }

  static void AddVisit(int unit, double cost, Walk& walk) {
    walk.units.push_back(unit);
    walk.lead.push_back(walk.tail);
    walk.compute.push_back(cost);
    walk.tail = 0;
  }

  const LayerWindowRequest& request_;
  std::vector<int> first_unit_;  // by block; -1: resident
};

// Enough cycles for the lanes to settle before one is measured.
constexpr int kWarmupCycles = 3;
constexpr int kMeasuredCycles = 3;

CycleTimes Simulate(const LayerSchedule& schedule, const Walk& walk,
                    const std::vector<double>& h2d) {
  std::vector<double> ready(h2d.size(), 0.0);
  double compute = 0;
  double lane = 0;
  CycleTimes times;
  double started = 0;
  for (int cycle = 0; cycle < kWarmupCycles + kMeasuredCycles; ++cycle) {
    if (cycle == kWarmupCycles) started = compute;
    size_t next = 0;
    for (size_t visit = 0; visit < walk.units.size(); ++visit) {
      const size_t unit = static_cast<size_t>(walk.units[visit]);
      compute = std::max(compute + walk.lead[visit], ready[unit]) + walk.compute[visit];
      for (; next < schedule.loads.size() &&
             schedule.loads[next].after_visit == static_cast<int>(visit);
           ++next) {
        const size_t load = static_cast<size_t>(schedule.loads[next].unit);
        lane = std::max(lane, compute) + h2d[load];
        ready[load] = lane;
      }
    }
    compute += walk.tail;
  }
  times.cycle = (compute - started) / kMeasuredCycles;
  times.compute = walk.tail;
  for (size_t visit = 0; visit < walk.units.size(); ++visit) {
    times.compute += walk.lead[visit] + walk.compute[visit];
  }
  for (const LayerLoad& load : schedule.loads) times.copy += h2d[static_cast<size_t>(load.unit)];
  times.stall = std::max(0.0, times.cycle - times.compute);
  return times;
}

std::vector<double> CopySeconds(const LayerWindow& window, const LayerWindowRequest& request) {
  std::vector<double> seconds;
  for (const LayerUnit& unit : window.units) {
    const double bytes = static_cast<double>(UnitBytes(unit, *request.blocks));
    const BlockProfile& block = (*request.blocks)[static_cast<size_t>(unit.block)];
    seconds.push_back(request.costs.h2d.empty()
                          ? bytes
                          : request.costs.h2d[static_cast<size_t>(unit.block)] * bytes /
                                static_cast<double>(block.bytes));
  }
  return seconds;
}

absl::Status BadWindow(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("layer window cannot be executed: ", what));
}

absl::Status ValidateSchedule(const LayerWindow& window, const LayerSchedule& schedule,
                              const std::vector<BlockProfile>& blocks) {
  const int num_units = static_cast<int>(window.units.size());
  const int num_visits = static_cast<int>(schedule.visits.size());
  const auto fits = [&](int unit, int64_t offset) {
    return unit >= 0 && unit < num_units && offset >= 0 && offset % kTensorAlignment == 0 &&
           offset + UnitBytes(window.units[static_cast<size_t>(unit)], blocks) <= window.bytes;
  };
  for (int unit : schedule.visits) {
    if (unit < 0 || unit >= num_units) return BadWindow(absl::StrCat("visit of unit ", unit));
  }
  int previous = 0;
  for (const LayerLoad& load : schedule.loads) {
    if (!fits(load.unit, load.offset) || load.after_visit < previous ||
        load.after_visit >= num_visits) {
      return BadWindow(absl::StrCat("load of unit ", load.unit, " at offset ", load.offset,
                                    " after visit ", load.after_visit));
    }
    previous = load.after_visit;
  }
  for (const LayerPlace& place : schedule.initial) {
    if (!fits(place.unit, place.offset)) {
      return BadWindow(absl::StrCat("unit ", place.unit, " starts at offset ", place.offset));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateLayers(const BlockProfile& block, int index) {
  for (const LayerProfile& layer : block.layers) {
    if (layer.offset < 0 || layer.bytes <= 0 || layer.offset % kTensorAlignment != 0 ||
        layer.bytes % kTensorAlignment != 0 || layer.offset + layer.bytes > block.bytes) {
      return BadWindow(absl::StrCat("a layer of block ", index, " at offset ", layer.offset,
                                    " with ", layer.bytes, " bytes"));
    }
    for (int tensor : layer.tensors) {
      const bool known = tensor >= 0 && tensor < static_cast<int>(block.tensors.size());
      const TensorExtent extent =
          known ? block.tensors[static_cast<size_t>(tensor)] : TensorExtent{};
      if (!known || extent.offset < layer.offset ||
          extent.offset + extent.bytes > layer.offset + layer.bytes) {
        return BadWindow(
            absl::StrCat("tensor ", tensor, " of block ", index, " lies outside its layer"));
      }
    }
  }
  for (const std::vector<int>* order : {&block.forward_layers, &block.backward_layers}) {
    for (int layer : *order) {
      if (layer < 0 || layer >= static_cast<int>(block.layers.size())) {
        return BadWindow(absl::StrCat("block ", index, " has no layer ", layer));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

LayerWindow PlanLayerWindow(const LayerWindowRequest& request) {
  LayerWindow window;
  std::vector<int64_t> bytes;
  for (int block : request.streamed) {
    const auto& layers = (*request.blocks)[static_cast<size_t>(block)].layers;
    for (int layer = 0; layer < static_cast<int>(layers.size()); ++layer) {
      window.units.push_back({block, layer});
      bytes.push_back(layers[static_cast<size_t>(layer)].bytes);
    }
  }
  std::vector<int64_t> sorted = bytes;
  std::sort(sorted.rbegin(), sorted.rend());
  for (size_t i = 0; i < std::min<size_t>(2, sorted.size()); ++i) window.bytes += sorted[i];
  const Walker walker(request, window.units);
  const std::vector<double> h2d = CopySeconds(window, request);
  for (const PassKind kind : {PassKind::kTraining, PassKind::kForwardOnly}) {
    const Walk walk = walker.Cycle(kind);
    double best = std::numeric_limits<double>::infinity();
    for (const LayerPlacement placement :
         {LayerPlacement::kEnds, LayerPlacement::kOldest, LayerPlacement::kFarthest}) {
      LayerSchedule schedule = PlaceLayers(walk.units, bytes, window.bytes, placement);
      const double seconds = Simulate(schedule, walk, h2d).cycle;
      if (seconds >= best) continue;
      best = seconds;
      (kind == PassKind::kTraining ? window.training : window.forward_only) = std::move(schedule);
    }
  }
  return window;
}

CycleTimes SimulateLayerCycle(const LayerWindow& window, PassKind kind,
                              const LayerWindowRequest& request) {
  return Simulate(kind == PassKind::kTraining ? window.training : window.forward_only,
                  Walker(request, window.units).Cycle(kind), CopySeconds(window, request));
}

int64_t LayerCycleBytes(const LayerWindow& window, PassKind kind,
                        const std::vector<BlockProfile>& blocks) {
  int64_t bytes = 0;
  for (const LayerLoad& load :
       (kind == PassKind::kTraining ? window.training : window.forward_only).loads) {
    bytes += UnitBytes(window.units[static_cast<size_t>(load.unit)], blocks);
  }
  return bytes;
}

RestLayout LayoutRest(const BlockProfile& block) {
  RestLayout layout;
  layout.offset_of.assign(block.tensors.size(), 0);
  for (const LayerProfile& layer : block.layers) {
    for (int tensor : layer.tensors) layout.offset_of[static_cast<size_t>(tensor)] = -1;
  }
  for (size_t i = 0; i < block.tensors.size(); ++i) {
    if (layout.offset_of[i] < 0) continue;
    layout.offset_of[i] = layout.bytes;
    layout.bytes +=
        (block.tensors[i].bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
  }
  return layout;
}

absl::Status ValidateLayerWindow(const SwapPlan& plan, const std::vector<BlockProfile>& blocks) {
  if (plan.exchanges() || plan.base_trains || plan.slots != 0) {
    return BadWindow("only a frozen base in h2d_only mode, without slots, streams layers");
  }
  if (!plan.training.transfers.empty() || !plan.forward_only.transfers.empty()) {
    return BadWindow("the plan moves whole blocks too");
  }
  std::vector<LayerUnit> expected;
  for (int block : plan.streamed_blocks()) {
    const BlockProfile& profile = blocks[static_cast<size_t>(block)];
    if (plan.blocks[static_cast<size_t>(block)].tier == HostTier::kFile) {
      return BadWindow(
          absl::StrCat("block ", block, " stays in the file, of which whole blocks are read"));
    }
    if (profile.layers.empty()) return BadWindow(absl::StrCat("block ", block, " has no layers"));
    const absl::Status valid = ValidateLayers(profile, block);
    if (!valid.ok()) return valid;
    for (int layer = 0; layer < static_cast<int>(profile.layers.size()); ++layer) {
      expected.push_back({block, layer});
      if (profile.layers[static_cast<size_t>(layer)].bytes > plan.window.bytes) {
        return BadWindow(absl::StrCat("a window of ", plan.window.bytes, " bytes, layer ", layer,
                                      " of block ", block, " has ",
                                      profile.layers[static_cast<size_t>(layer)].bytes));
      }
    }
  }
  if (plan.window.units != expected) return BadWindow("made for other streamed blocks");
  const absl::Status valid = ValidateSchedule(plan.window, plan.window.training, blocks);
  if (!valid.ok()) return valid;
  return ValidateSchedule(plan.window, plan.window.forward_only, blocks);
}

}  // namespace blockswap::offload
