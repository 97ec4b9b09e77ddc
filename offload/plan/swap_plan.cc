// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/swap_plan.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "offload/plan/layer_schedule.h"

namespace blockswap::offload {
namespace {

absl::Status BadPlan(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("plan cannot be executed: ", what));
}

absl::Status ValidateBlock(const BlockProfile& block, int index) {
  if (block.bytes <= 0 || block.bytes % kTensorAlignment != 0) {
    return BadPlan(absl::StrCat("block ", index, " has ", block.bytes,
                                " bytes, not a positive multiple of ", kTensorAlignment));
  }
  for (size_t i = 0; i < block.tensors.size(); ++i) {
    const TensorExtent& tensor = block.tensors[i];
    if (tensor.offset < 0 || tensor.offset % kTensorAlignment != 0 || tensor.bytes < 0 ||
        tensor.offset > block.bytes - tensor.bytes) {
      return BadPlan(absl::StrCat("tensor ", i, " of block ", index, " at offset ", tensor.offset,
                                  " with ", tensor.bytes, " bytes lies outside the block's ",
                                  block.bytes, " bytes"));
    }
  }
  return absl::OkStatus();
}

// Where slots differ, a block can only take the place of one that uses slots of the same size.
absl::Status ValidateSlotSizes(const SwapPlan& plan, const std::vector<BlockProfile>& blocks) {
  if (plan.slot_sizes.empty()) return absl::OkStatus();
  if (static_cast<int>(plan.slot_sizes.size()) != plan.slots || plan.exchanges() ||
      *std::max_element(plan.slot_sizes.begin(), plan.slot_sizes.end()) != plan.slot_bytes) {
    return BadPlan(absl::StrCat("sizes of ", plan.slot_sizes.size(), " slots do not describe ",
                                plan.slots, " slots of at most ", plan.slot_bytes, " bytes"));
  }
  std::map<int64_t, int> slots_of;
  for (const int64_t size : plan.slot_sizes) {
    if (size <= 0 || size % kTensorAlignment != 0) {
      return BadPlan(absl::StrCat("a slot of ", size, " bytes"));
    }
    ++slots_of[size];
  }
  const auto size_for = [&](int block) {
    const auto it = slots_of.lower_bound(blocks[static_cast<size_t>(block)].bytes);
    return it == slots_of.end() ? int64_t{0} : it->first;
  };
  for (const TransferSchedule* schedule : {&plan.training, &plan.forward_only}) {
    std::map<int64_t, int> used;
    for (const int block : schedule->initial) {
      if (++used[size_for(block)] > slots_of[size_for(block)]) {
        return BadPlan(absl::StrCat("more blocks than slots of ", size_for(block),
                                    " bytes at the start of a cycle"));
      }
    }
    for (const Transfer& transfer : schedule->transfers) {
      if (size_for(transfer.load) == size_for(transfer.evict)) continue;
      return BadPlan(absl::StrCat("block ", transfer.load, " cannot take the slot of block ",
                                  transfer.evict, ": their slots have different sizes"));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateSchedule(const SwapPlan& plan, const TransferSchedule& schedule,
                              absl::string_view name) {
  const int num_blocks = static_cast<int>(plan.blocks.size());
  const int num_visits = static_cast<int>(schedule.visits.size());
  for (int block : schedule.visits) {
    if (block < 0 || block >= num_blocks) {
      return BadPlan(absl::StrCat(name, " schedule visits block ", block, " of ", num_blocks));
    }
  }
  const auto may_move = [&](int block) {
    return block >= 0 && block < num_blocks &&
           (plan.exchanges() || plan.blocks[block].residence == Residence::kStreamed);
  };
  int previous = 0;
  for (const Transfer& transfer : schedule.transfers) {
    if (transfer.after_visit < previous || transfer.after_visit >= num_visits) {
      return BadPlan(absl::StrCat(name, " schedule has a transfer after visit ",
                                  transfer.after_visit, ", out of order or beyond ", num_visits));
    }
    previous = transfer.after_visit;
    if (!may_move(transfer.load) || !may_move(transfer.evict) || transfer.load == transfer.evict) {
      return BadPlan(absl::StrCat(name, " schedule loads block ", transfer.load, " over block ",
                                  transfer.evict, ", which is not a pair of streamed blocks"));
    }
  }
  std::vector<int> initial = schedule.initial;
  std::sort(initial.begin(), initial.end());
  if (std::adjacent_find(initial.begin(), initial.end()) != initial.end() ||
      static_cast<int>(initial.size()) > plan.slots ||
      !std::all_of(initial.begin(), initial.end(), may_move)) {
    return BadPlan(absl::StrCat(name, " schedule starts from blocks that are not ", plan.slots,
                                " or fewer different streamed blocks"));
  }
  // What starts on the device is read straight into the slots; everything else has a host buffer.
  const bool on_device = std::all_of(initial.begin(), initial.end(), [&](int block) {
    return plan.blocks[block].residence == Residence::kResident;
  });
  if (plan.exchanges() && plan.slots > 0 &&
      (static_cast<int>(initial.size()) != plan.slots || !on_device)) {
    return BadPlan(absl::StrCat(name, " schedule of an exchange does not start from the ",
                                plan.slots, " blocks on the device"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::string_view ResidenceName(Residence residence) {
  return residence == Residence::kResident ? "resident" : "streamed";
}

absl::string_view HostTierName(HostTier tier) {
  switch (tier) {
    case HostTier::kPinned:
      return "pinned";
    case HostTier::kPageable:
      return "pageable";
    case HostTier::kFile:
      return "file";
  }
  return "unknown";
}

absl::string_view TransferModeName(TransferMode mode) {
  return mode == TransferMode::kH2dOnly ? "h2d_only" : "exchange";
}

absl::string_view GranularityName(Granularity granularity) {
  return granularity == Granularity::kBlock ? "block" : "layer";
}

absl::string_view ToggleName(Toggle toggle) {
  switch (toggle) {
    case Toggle::kAuto:
      return "auto";
    case Toggle::kOn:
      return "on";
    case Toggle::kOff:
      return "off";
  }
  return "auto";
}

absl::string_view PinPolicyName(PinPolicy policy) {
  switch (policy) {
    case PinPolicy::kAuto:
      return "auto";
    case PinPolicy::kRequired:
      return "required";
    case PinPolicy::kNever:
      return "never";
  }
  return "unknown";
}

int SwapPlan::num_streamed() const { return static_cast<int>(streamed_blocks().size()); }

std::vector<int> SwapPlan::streamed_blocks() const {
  std::vector<int> streamed;
  for (int block = 0; block < static_cast<int>(blocks.size()); ++block) {
    if (blocks[block].residence == Residence::kStreamed) streamed.push_back(block);
  }
  return streamed;
}

std::vector<int> SwapPlan::mastered_blocks() const {
  if (!base_trains) return streamed_blocks();
  std::vector<int> all(blocks.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

absl::Status ValidatePlan(const SwapPlan& plan, const std::vector<BlockProfile>& blocks) {
  if (plan.blocks.size() != blocks.size()) {
    return BadPlan(
        absl::StrCat("made for ", plan.blocks.size(), " blocks, the model has ", blocks.size()));
  }
  // In exchange mode every block may come to sit in any slot.
  const auto uses_slot = [&plan](int block) {
    return plan.slots > 0 &&
           (plan.exchanges() || plan.blocks[block].residence == Residence::kStreamed);
  };
  int64_t largest = 0;
  for (int block = 0; block < static_cast<int>(blocks.size()); ++block) {
    BLOCKSWAP_RETURN_IF_ERROR(ValidateBlock(blocks[block], block));
    if (uses_slot(block)) largest = std::max(largest, blocks[block].bytes);
  }
  if (plan.granularity == Granularity::kLayer && plan.num_streamed() > 0) {
    return ValidateLayerWindow(plan, blocks);
  }
  if ((plan.num_streamed() > 0) != (plan.slots > 0)) {
    return BadPlan(
        absl::StrCat(plan.num_streamed(), " streamed blocks but ", plan.slots, " slots"));
  }
  if (plan.slots > 0 && plan.slot_bytes < largest) {
    return BadPlan(
        absl::StrCat("slots of ", plan.slot_bytes, " bytes, the largest block has ", largest));
  }
  if (plan.slot_bytes % kTensorAlignment != 0) {
    return BadPlan(
        absl::StrCat("slots of ", plan.slot_bytes, " bytes, not a multiple of ", kTensorAlignment));
  }
  const int on_device = static_cast<int>(blocks.size()) - plan.num_streamed();
  if (plan.exchanges() && plan.slots != 0 && plan.slots != on_device) {
    return BadPlan(absl::StrCat("exchange with ", plan.slots, " slots for ", on_device,
                                " blocks on the device"));
  }
  BLOCKSWAP_RETURN_IF_ERROR(ValidateSchedule(plan, plan.training, "training"));
  BLOCKSWAP_RETURN_IF_ERROR(ValidateSchedule(plan, plan.forward_only, "forward-only"));
  return ValidateSlotSizes(plan, blocks);
}

}  // namespace blockswap::offload
