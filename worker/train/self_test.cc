// SPDX-License-Identifier: Apache-2.0
#include "worker/train/self_test.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "offload/base/status_macros.h"
#include "worker/kernels/device_memory.h"
#include "worker/kernels/torch_boundary.h"

namespace blockswap::worker {
namespace {

using offload::BlockLease;
using offload::BlockSwapper;
using offload::Direction;

// Everything one run of a block gives, by what it is.
struct BlockRun {
  Streams outputs, input_grads, adapter_grads;
};

// By bytes: a number that is none equals itself here.
bool SameBits(const at::Tensor& left, const at::Tensor& right) {
  if (left.defined() != right.defined()) return false;
  if (!left.defined()) return true;
  if (left.sizes() != right.sizes() || left.scalar_type() != right.scalar_type()) return false;
  return at::equal(left.contiguous().view({-1}).view(at::kByte),
                   right.contiguous().view({-1}).view(at::kByte));
}

bool SameBits(const Streams& left, const Streams& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                    [](const at::Tensor& a, const at::Tensor& b) { return SameBits(a, b); });
}

const char* FirstDifference(const BlockRun& streamed, const BlockRun& resident) {
  if (!SameBits(streamed.outputs, resident.outputs)) return "outputs";
  if (!SameBits(streamed.input_grads, resident.input_grads)) return "input gradients";
  if (!SameBits(streamed.adapter_grads, resident.adapter_grads)) return "adapter gradients";
  return nullptr;
}

class SelfTest {
 public:
  SelfTest(const WalkContext& context, const SelfTestSubject& subject)
      : context_(context), subject_(subject) {}

  absl::Status Run(const std::vector<int>& blocks, const ModelInputs& inputs,
                   SelfTestResult* result) {
    const MemoryScope scope(offload::MemoryTag::kActivations);
    const at::NoGradGuard no_grad;
    const std::unique_ptr<Conditioning> conditioning = context_.model->Condition(inputs);
    Streams streams = context_.model->Embed(inputs);
    BLOCKSWAP_RETURN_IF_ERROR(context_.swapper->BeginPass(offload::PassKind::kForwardOnly));
    for (int block = 0; block <= blocks.back(); ++block) {
      BLOCKSWAP_ASSIGN_OR_RETURN(const BlockLease lease,
                                 context_.swapper->Acquire(block, Direction::kForward));
      if (!absl::c_linear_search(blocks, block)) {
        streams = Forward(block, streams, *conditioning, lease);
        continue;
      }
      Streams outputs;
      const absl::Status same = Compare(block, streams, *conditioning, lease, &outputs);
      if (!same.ok() && !absl::IsResourceExhausted(same)) return same;
      (same.ok() ? result->compared : result->left_out).push_back(block);
      streams =
          outputs.empty() ? Forward(block, streams, *conditioning, lease) : std::move(outputs);
    }
    return absl::OkStatus();
  }

 private:
  Streams Forward(int block, const Streams& streams, const Conditioning& conditioning,
                  const BlockLease& lease) const {
    static const AdapterBlock kNoAdapter;
    const BlockWeights weights =
        WeightsOfLease(lease, context_.description->blocks[static_cast<size_t>(block)],
                       context_.description->dtype, context_.device);
    return context_.model->ForwardBlock(
        block, streams, conditioning, weights,
        context_.adapter == nullptr ? kNoAdapter : context_.adapter->block(block));
  }

  // Forward and backward of one block; what flows back is its own output.
  BlockRun RunBlock(int block, const Streams& streams, const Conditioning& conditioning,
                    const BlockLease& lease) const {
    const bool trains = context_.adapter != nullptr && context_.adapter->gradients().defined();
    if (trains) context_.adapter->gradients().zero_();
    BlockRun run;
    Streams inputs;
    {
      const at::AutoGradMode with_gradient(true);
      for (const at::Tensor& stream : streams) inputs.push_back(stream.detach().requires_grad_());
      const Streams outputs = Forward(block, inputs, conditioning, lease);
      std::vector<at::Tensor> roots, grads;
      for (const at::Tensor& output : outputs) {
        run.outputs.push_back(output.detach());
        if (!output.requires_grad()) continue;
        roots.push_back(output);
        grads.push_back(output.detach());
      }
      torch::autograd::backward(roots, grads);
    }
    for (const at::Tensor& input : inputs) run.input_grads.push_back(input.grad());
    if (!trains) return run;
    for (const LoraModule& module : context_.adapter->block(block).linears) {
      if (!module.present) continue;
      run.adapter_grads.push_back(module.down_grad.clone());
      run.adapter_grads.push_back(module.up_grad.clone());
    }
    context_.adapter->gradients().zero_();
    return run;
  }

  // A swapper of this one block, resident.
  absl::StatusOr<std::unique_ptr<BlockSwapper>> OwnCopy(int block) const {
    offload::SwapPlan plan;
    plan.blocks.resize(1);
    plan.training.visits = {0, 0};
    plan.forward_only.visits = {0};
    return BlockSwapper::Create(subject_.runtime, std::move(plan),
                                {(*subject_.profiles)[static_cast<size_t>(block)]},
                                [&](int /*first*/, absl::Span<std::byte> destination) {
                                  return subject_.reader(block, destination);
                                });
  }

  absl::Status Compare(int block, const Streams& streams, const Conditioning& conditioning,
                       const BlockLease& lease, Streams* outputs) const {
    return RunContained([&]() -> absl::Status {
      const BlockRun streamed = RunBlock(block, streams, conditioning, lease);
      *outputs = streamed.outputs;
      BLOCKSWAP_ASSIGN_OR_RETURN(const std::unique_ptr<BlockSwapper> copy, OwnCopy(block));
      BLOCKSWAP_ASSIGN_OR_RETURN(const BlockLease own, copy->Acquire(0, Direction::kForward));
      const BlockRun resident = RunBlock(block, streams, conditioning, own);
      const char* difference = FirstDifference(streamed, resident);
      if (difference == nullptr) return absl::OkStatus();
      const offload::SwapPlan& plan = context_.swapper->plan();
      return absl::DataLossError(absl::StrCat(
          "self-test: ", difference, " of block ", block, " (",
          (*subject_.profiles)[static_cast<size_t>(block)].name, ") streamed (",
          plan.blocks_to_swap, " blocks swapped over ", plan.slots, " slots, ",
          offload::TransferModeName(plan.mode), ", granularity ",
          offload::GranularityName(plan.granularity),
          ") are not those of the block resident by itself (1 block, no slots): the weights that "
          "reach the device are damaged; check host memory, the device and its link"));
    });
  }

  const WalkContext& context_;
  const SelfTestSubject& subject_;
};

}  // namespace

std::vector<int> BlocksToTest(const offload::SwapPlan& plan,
                              const std::vector<offload::BlockList>& lists) {
  std::vector<int> blocks;
  for (const offload::BlockList& list : lists) {
    std::vector<int> streamed;
    for (int block = list.first; block < list.first + list.count; ++block) {
      const bool moves = plan.exchanges() ? plan.num_streamed() > 0
                                          : plan.blocks[static_cast<size_t>(block)].residence ==
                                                offload::Residence::kStreamed;
      if (moves) streamed.push_back(block);
    }
    if (streamed.empty()) continue;
    for (const size_t index : {size_t{0}, streamed.size() / 2, streamed.size() - 1}) {
      blocks.push_back(streamed[index]);
    }
  }
  absl::c_sort(blocks);
  blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
  return blocks;
}

absl::StatusOr<SelfTestResult> RunSelfTest(const WalkContext& context,
                                           const SelfTestSubject& subject,
                                           const std::vector<int>& blocks,
                                           const ModelInputs& inputs) {
  SelfTestResult result;
  if (blocks.empty()) return result;
  const absl::Time begin = absl::Now();
  SelfTest test(context, subject);
  BLOCKSWAP_RETURN_IF_ERROR(RunContained([&] { return test.Run(blocks, inputs, &result); }));
  result.took = absl::Now() - begin;
  return result;
}

}  // namespace blockswap::worker
