// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/swap_case.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "offload/base/status_macros.h"
#include "offload/device/host_device.h"
#include "offload/plan/planner.h"
#include "offload/plan/schedule.h"
#include "offload/plan/step_model.h"
#include "offload/swap/block_swapper.h"
#include "tests/bench/paced_compute.h"

namespace blockswap::bench {
namespace {

// Small: the time of a copy is the lane's set rate, the bytes only have to be real.
constexpr int64_t kTensorBytes = int64_t{16} << 10;

using Clock = PacedCompute::Clock;

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

offload::ModelProfile Model(const BlockStack& stack) {
  offload::ModelProfile model;
  for (int i = 0; i < stack.blocks; ++i) {
    offload::BlockProfile block;
    block.name = absl::StrCat("blocks.", i);
    for (int tensor = 0; tensor < stack.linears; ++tensor) {
      block.tensors.push_back({tensor * kTensorBytes, kTensorBytes});
    }
    block.bytes = stack.linears * kTensorBytes;
    block.forward_flops = 1;
    for (int linear = 0; linear < stack.linears; ++linear) {
      block.layers.push_back(
          {.tensors = {linear}, .offset = linear * kTensorBytes, .bytes = kTensorBytes});
      block.forward_layers.push_back(linear);
    }
    // The recompute, then back.
    block.backward_layers = block.forward_layers;
    block.backward_layers.insert(block.backward_layers.end(), block.forward_layers.rbegin(),
                                 block.forward_layers.rend());
    model.blocks.push_back(std::move(block));
  }
  model.max_blocks_to_swap = stack.blocks;
  model.forward_flops = stack.blocks;
  model.backward_over_forward = stack.backward_seconds / stack.forward_seconds;
  return model;
}

double LinkRate(const BlockStack& stack, const SwapCase& row) {
  return static_cast<double>(stack.linears * kTensorBytes) / CopySeconds(stack, row);
}

offload::PlanRequest Request(const BlockStack& stack, const SwapCase& row) {
  offload::PlanRequest request;
  request.model = Model(stack);
  request.device_free_bytes = request.host_available_bytes = int64_t{1} << 40;
  const double rate = LinkRate(stack, row);
  request.link.h2d_bytes_per_second = request.link.d2h_bytes_per_second = rate;
  request.link.pageable_bytes_per_second = rate;
  request.compute_flops_per_second = 1 / stack.forward_seconds;
  offload::MemoryConstraints& constraints = request.constraints;
  constraints.blocks_to_swap = row.policy == Policy::kResident ? 0 : row.streamed;
  constraints.ring_size = row.policy == Policy::kSingleSlot ? 1 : stack.ring;
  constraints.pin_policy = offload::PinPolicy::kNever;  // the host device copies from any memory
  // A step that always recomputes: the bound counts no kept activations.
  constraints.checkpointing = offload::Toggle::kOn;
  if (row.policy == Policy::kExchange) constraints.mode = offload::TransferMode::kExchange;
  if (row.policy == Policy::kLayer) constraints.granularity = offload::Granularity::kLayer;
  return request;
}

// A ring whose streamed blocks are given. The planner never makes one that is not evenly spaced.
void StreamThrough(const BlockStack& stack, const std::vector<int>& streamed, int ring,
                   offload::SwapPlan* plan) {
  for (offload::BlockPlacement& placement : plan->blocks) {
    placement.residence = offload::Residence::kResident;
  }
  for (const int block : streamed) {
    plan->blocks[static_cast<size_t>(block)].residence = offload::Residence::kStreamed;
  }
  plan->slots = ring;
  plan->training = offload::RingSchedule(offload::PassKind::kTraining, stack.blocks, streamed, ring,
                                         /*micro_batches=*/1);
  plan->forward_only = offload::RingSchedule(offload::PassKind::kForwardOnly, stack.blocks,
                                             streamed, ring, /*micro_batches=*/1);
}

double Simulate(const BlockStack& stack, const SwapCase& row, const offload::SwapPlan& plan) {
  const size_t blocks = static_cast<size_t>(stack.blocks);
  offload::BlockCosts costs;
  costs.forward.assign(blocks, stack.forward_seconds);
  costs.backward.assign(blocks, stack.backward_seconds);
  costs.h2d.assign(blocks, CopySeconds(stack, row));
  costs.d2h = costs.h2d;
  return offload::SimulateCycle(plan.training, offload::PassKind::kTraining, plan.mode, costs)
      .cycle;
}

absl::StatusOr<std::unique_ptr<offload::BlockSwapper>> Load(const BlockStack& stack,
                                                            offload::SwapPlan plan,
                                                            offload::DeviceRuntime* device) {
  const offload::BlockReader reader = [](int block, absl::Span<std::byte> destination) {
    std::memset(destination.data(), block + 1, destination.size());
    return absl::OkStatus();
  };
  return offload::BlockSwapper::Create(device, std::move(plan), Model(stack).blocks, reader);
}

// The linears of a block in the order it asks for them, each for its share of the time.
absl::Status VisitLinears(const BlockStack& stack, offload::Direction direction,
                          offload::DeviceRuntime* device, const offload::BlockLease& lease,
                          PacedCompute* compute) {
  const double linears = stack.linears;
  const auto hold = [&](int linear, double seconds) -> absl::Status {
    const absl::Duration stalled = device->compute_stall();
    BLOCKSWAP_ASSIGN_OR_RETURN(const offload::TensorLease tensor, lease.Hold(linear));
    if (device->compute_stall() > stalled) compute->StartNow();
    compute->Occupy(seconds);
    return absl::OkStatus();
  };
  for (int linear = 0; linear < stack.linears; ++linear) {
    BLOCKSWAP_RETURN_IF_ERROR(hold(linear, stack.forward_seconds / linears));
  }
  if (direction == offload::Direction::kForward) return absl::OkStatus();
  const double back = (stack.backward_seconds - stack.forward_seconds) / linears;
  for (int linear = stack.linears - 1; linear >= 0; --linear) {
    BLOCKSWAP_RETURN_IF_ERROR(hold(linear, back));
  }
  return absl::OkStatus();
}

absl::Status Visit(const BlockStack& stack, int block, offload::Direction direction,
                   offload::DeviceRuntime* device, offload::BlockSwapper* swapper,
                   PacedCompute* compute) {
  const bool forward = direction == offload::Direction::kForward;
  const double seconds = forward ? stack.forward_seconds : stack.backward_seconds;
  const absl::Duration stalled = device->compute_stall();
  BLOCKSWAP_ASSIGN_OR_RETURN(const offload::BlockLease lease, swapper->Acquire(block, direction));
  if (device->compute_stall() > stalled) compute->StartNow();
  if (swapper->plan().granularity == offload::Granularity::kLayer) {
    return VisitLinears(stack, direction, device, lease, compute);
  }
  compute->Occupy(seconds);
  return absl::OkStatus();
}

absl::Status RunStep(const BlockStack& stack, offload::DeviceRuntime* device,
                     offload::BlockSwapper* swapper, PacedCompute* compute) {
  BLOCKSWAP_RETURN_IF_ERROR(swapper->BeginPass(offload::PassKind::kTraining));
  for (int block = 0; block < stack.blocks; ++block) {
    BLOCKSWAP_RETURN_IF_ERROR(
        Visit(stack, block, offload::Direction::kForward, device, swapper, compute));
  }
  for (int block = stack.blocks - 1; block >= 0; --block) {
    BLOCKSWAP_RETURN_IF_ERROR(
        Visit(stack, block, offload::Direction::kBackward, device, swapper, compute));
  }
  return absl::OkStatus();
}

// Host time of the visits of one step, `pause` between them so that every copy has arrived.
absl::Status TimeVisits(const BlockStack& stack, double pause, offload::BlockSwapper* swapper,
                        PacedCompute* compute, std::vector<double>* seconds) {
  BLOCKSWAP_RETURN_IF_ERROR(swapper->BeginPass(offload::PassKind::kTraining));
  const std::vector<int> visits =
      offload::Visits(offload::PassKind::kTraining, stack.blocks, /*micro_batches=*/1);
  for (size_t i = 0; i < visits.size(); ++i) {
    const bool forward = i < static_cast<size_t>(stack.blocks);
    const Clock::time_point begin = Clock::now();
    {
      BLOCKSWAP_ASSIGN_OR_RETURN(
          const offload::BlockLease lease,
          swapper->Acquire(visits[i],
                           forward ? offload::Direction::kForward : offload::Direction::kBackward));
    }
    seconds->push_back(Seconds(Clock::now() - begin));
    compute->StartNow();
    compute->Occupy(pause);
  }
  return absl::OkStatus();
}

}  // namespace

const char* PolicyName(Policy policy) {
  switch (policy) {
    case Policy::kResident:
      return "resident";
    case Policy::kOurs:
      return "ours";
    case Policy::kSingleSlot:
      return "ring_1";
    case Policy::kTailPlacement:
      return "tail";
    case Policy::kExchange:
      return "exchange";
    case Policy::kLayer:
      return "layer";
  }
  return "";
}

double CopySeconds(const BlockStack& stack, const SwapCase& row) {
  return row.ratio * stack.compute_seconds() / (2 * std::max(1, row.streamed));
}

double Bound(const BlockStack& stack, const SwapCase& row) {
  if (row.policy == Policy::kResident) return stack.compute_seconds();
  const double copies = std::max(0, row.streamed - stack.ring) * CopySeconds(stack, row);
  return std::max(stack.blocks * stack.forward_seconds, copies) +
         std::max(stack.blocks * stack.backward_seconds, copies);
}

absl::StatusOr<offload::SwapPlan> PlanCase(const BlockStack& stack, const SwapCase& row) {
  const offload::PlanRequest request = Request(stack, row);
  BLOCKSWAP_ASSIGN_OR_RETURN(offload::SwapPlan plan, offload::Plan(request));
  if (plan.granularity != request.constraints.granularity) {
    return absl::UnimplementedError("the planner makes no plan of this granularity");
  }
  if (row.policy == Policy::kSingleSlot) {
    StreamThrough(stack, offload::EvenlySpaced(stack.blocks, row.streamed), /*ring=*/1, &plan);
  }
  if (row.policy == Policy::kTailPlacement) {
    std::vector<int> tail;
    for (int block = stack.blocks - row.streamed; block < stack.blocks; ++block) {
      tail.push_back(block);
    }
    StreamThrough(stack, tail, stack.ring, &plan);
  }
  return plan;
}

absl::StatusOr<CaseResult> RunCase(const BlockStack& stack, const SwapCase& row, int steps) {
  BLOCKSWAP_ASSIGN_OR_RETURN(offload::SwapPlan plan, PlanCase(stack, row));
  CaseResult result;
  if (plan.granularity == offload::Granularity::kBlock) {
    result.simulated_seconds = Simulate(stack, row, plan);
  }
  PacedCompute compute;  // before the device: its lanes inherit exact timers
  offload::HostDeviceOptions options;
  options.h2d_bytes_per_second = options.d2h_bytes_per_second = LinkRate(stack, row);
  BLOCKSWAP_ASSIGN_OR_RETURN(const auto device, offload::HostDevice::Create(options));
  BLOCKSWAP_ASSIGN_OR_RETURN(const auto swapper, Load(stack, std::move(plan), device.get()));
  BLOCKSWAP_RETURN_IF_ERROR(swapper->Drain());
  compute.StartNow();
  BLOCKSWAP_RETURN_IF_ERROR(RunStep(stack, device.get(), swapper.get(), &compute));
  const offload::SwapStats before = swapper->stats();
  std::vector<double> seconds;
  for (int step = 0; step < steps; ++step) {
    const Clock::time_point begin = compute.cursor();
    BLOCKSWAP_RETURN_IF_ERROR(RunStep(stack, device.get(), swapper.get(), &compute));
    seconds.push_back(Seconds(compute.cursor() - begin));
  }
  const offload::SwapStats after = swapper->stats();
  result.step_seconds = Median(seconds);
  result.fastest_seconds = *std::min_element(seconds.begin(), seconds.end());
  result.bound_seconds = Bound(stack, row);
  result.of_bound = result.bound_seconds / result.step_seconds;
  result.h2d_bytes = (after.h2d_bytes - before.h2d_bytes) / steps;
  result.d2h_bytes = (after.d2h_bytes - before.d2h_bytes) / steps;
  result.device_weight_bytes = after.device_weight_bytes_peak;
  return result;
}

absl::StatusOr<VisitOverhead> MeasureVisitOverhead(int steps) {
  constexpr double kPause = 300e-6;
  VisitOverhead overhead;
  BlockStack stack;
  stack.blocks = 30;
  stack.forward_seconds = stack.backward_seconds = kPause;
  for (const int streamed : {0, stack.blocks}) {
    PacedCompute compute;
    BLOCKSWAP_ASSIGN_OR_RETURN(const auto device, offload::HostDevice::Create({}));
    SwapCase row{.policy = Policy::kTailPlacement, .ratio = 0.1, .streamed = streamed};
    if (streamed == 0) row.policy = Policy::kResident;
    BLOCKSWAP_ASSIGN_OR_RETURN(offload::SwapPlan plan, PlanCase(stack, row));
    BLOCKSWAP_ASSIGN_OR_RETURN(const auto swapper, Load(stack, std::move(plan), device.get()));
    std::vector<double> seconds;
    for (int step = 0; step < steps; ++step) {
      BLOCKSWAP_RETURN_IF_ERROR(TimeVisits(stack, kPause, swapper.get(), &compute, &seconds));
    }
    (streamed == 0 ? overhead.resident_seconds : overhead.streamed_seconds) = Median(seconds);
  }
  return overhead;
}

}  // namespace blockswap::bench
