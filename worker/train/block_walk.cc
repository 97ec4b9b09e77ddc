// SPDX-License-Identifier: Apache-2.0
#include "worker/train/block_walk.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "offload/base/status_macros.h"
#include "worker/kernels/device_memory.h"
#include "worker/kernels/torch_boundary.h"

namespace blockswap::worker {
namespace {

using offload::BlockLease;
using offload::Direction;
using StopFunction = std::function<absl::Status()>;

// What one micro-batch keeps of one block between its forward and its backward.
struct SavedBlock {
  Streams inputs;   // empty while they wait on the host
  Streams outputs;  // with their graph; only of a block that keeps its activations
};

// One micro-batch on its way through the blocks.
struct Lane {
  ModelInputs inputs;
  std::unique_ptr<Conditioning> conditioning;
  Streams embedded;  // root of the hidden states' gradient, where it is wanted
  Streams streams;   // what the next block takes
  Streams grads;     // on the way back; a stream without a gradient is undefined
  std::vector<SavedBlock> saved;
};

// One cycle over the blocks with all lanes in step: each block is leased once per direction.
class Walk {
 public:
  Walk(const WalkContext& context, const StopFunction& stop)
      : context_(context), stop_(stop), leases_(static_cast<size_t>(num_blocks())) {}
  ~Walk() {
    if (store_used_) context_.boundaries->Clear();
  }
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;

  std::vector<Lane>& lanes() { return lanes_; }

  absl::Status ForwardOnly() {
    const at::NoGradGuard no_grad;
    for (int block = 0; block < num_blocks(); ++block) {
      BLOCKSWAP_RETURN_IF_ERROR(stop_());
      BLOCKSWAP_RETURN_IF_ERROR(Lease(block, Direction::kForward));
      for (Lane& lane : lanes_) {
        lane.streams = ForwardBlock(block, lane.streams, *lane.conditioning);
      }
      leases_[static_cast<size_t>(block)].Release();
    }
    return absl::OkStatus();
  }

  absl::Status Forward() {
    BLOCKSWAP_RETURN_IF_ERROR(ReserveBoundaries());
    for (Lane& lane : lanes_) lane.saved.resize(static_cast<size_t>(num_blocks()));
    for (int block = 0; block < num_blocks(); ++block) {
      BLOCKSWAP_RETURN_IF_ERROR(stop_());
      BLOCKSWAP_RETURN_IF_ERROR(Lease(block, Direction::kForward));
      for (Lane& lane : lanes_) ForwardSaving(block, lane);
      // A kept graph reads the weights again in backward, through the lease that is taken there.
      leases_[static_cast<size_t>(block)].Release();
      if (!GoesAway(block)) continue;
      for (size_t lane = 0; lane < lanes_.size(); ++lane) {
        BLOCKSWAP_RETURN_IF_ERROR(context_.boundaries->Save(Entry(block, lane),
                                                            std::move(Saved(block, lane).inputs),
                                                            static_cast<int64_t>(lanes_.size())));
      }
    }
    return absl::OkStatus();
  }

  // Takes the gradients of the last block's outputs back to the first block's inputs.
  absl::Status Backward() {
    BLOCKSWAP_RETURN_IF_ERROR(FetchBoundaries(num_blocks() - 1));
    for (int block = num_blocks() - 1; block >= 0; --block) {
      BLOCKSWAP_RETURN_IF_ERROR(stop_());
      BLOCKSWAP_RETURN_IF_ERROR(Lease(block, Direction::kBackward));
      BLOCKSWAP_RETURN_IF_ERROR(FetchBoundaries(block - 1));
      // The lease ends after the block's own backward: it reads the weights again (see F001 in the
      // tests).
      for (size_t lane = 0; lane < lanes_.size(); ++lane) {
        BLOCKSWAP_RETURN_IF_ERROR(BackwardBlock(block, lane));
      }
      leases_[static_cast<size_t>(block)].Release();
    }
    return absl::OkStatus();
  }

 private:
  int num_blocks() const { return context_.model->num_blocks(); }
  const offload::BlockPlacement& placement(int block) const {
    return context_.swapper->plan().blocks[static_cast<size_t>(block)];
  }
  bool Keeps(int block) const { return placement(block).keeps_activations; }
  bool GoesAway(int block) const { return rank_away_[static_cast<size_t>(block)] >= 0; }
  SavedBlock& Saved(int block, size_t lane) {
    return lanes_[lane].saved[static_cast<size_t>(block)];
  }
  int64_t Entry(int block, size_t lane) const {
    return rank_away_[static_cast<size_t>(block)] * static_cast<int64_t>(lanes_.size()) +
           static_cast<int64_t>(lane);
  }

  // Leases live at fixed addresses: the weights in a kept graph point to them.
  absl::Status Lease(int block, Direction direction) {
    if (context_.await_weights) BLOCKSWAP_RETURN_IF_ERROR(context_.await_weights(block));
    BLOCKSWAP_ASSIGN_OR_RETURN(leases_[static_cast<size_t>(block)],
                               context_.swapper->Acquire(block, direction));
    return absl::OkStatus();
  }

  Streams ForwardBlock(int block, const Streams& streams, const Conditioning& conditioning) const {
    BlockWeights weights = WeightsOfLease(leases_[static_cast<size_t>(block)],
                                          context_.description->blocks[static_cast<size_t>(block)],
                                          context_.description->dtype, context_.device);
    if (context_.base != nullptr && at::GradMode::is_enabled()) {
      std::vector<at::Tensor> gradients = context_.base->BlockViews(block);
      for (size_t i = 0; i < gradients.size(); ++i)
        weights.tensors[i].set_gradient(std::move(gradients[i]));
    }
    static const AdapterBlock kNoAdapter;
    const AdapterBlock& adapter =
        context_.adapter == nullptr ? kNoAdapter : context_.adapter->block(block);
    return context_.model->ForwardBlock(block, streams, conditioning, weights, adapter);
  }

  // Forward from inputs that are leaves, with a graph.
  Streams ForwardWithGraph(int block, Streams& inputs, const Conditioning& conditioning) const {
    const at::AutoGradMode with_gradient(true);
    for (at::Tensor& input : inputs) input = input.detach().requires_grad_();
    return ForwardBlock(block, inputs, conditioning);
  }

  void ForwardSaving(int block, Lane& lane) {
    SavedBlock& saved = lane.saved[static_cast<size_t>(block)];
    saved.inputs = std::move(lane.streams);
    lane.streams.clear();
    if (Keeps(block)) {
      saved.outputs = ForwardWithGraph(block, saved.inputs, *lane.conditioning);
      for (const at::Tensor& output : saved.outputs) lane.streams.push_back(output.detach());
      return;
    }
    const at::NoGradGuard no_grad;
    lane.streams = ForwardBlock(block, saved.inputs, *lane.conditioning);
  }

  absl::Status BackwardBlock(int block, size_t index) {
    Lane& lane = lanes_[index];
    SavedBlock saved = std::exchange(Saved(block, index), {});
    if (GoesAway(block)) {
      BLOCKSWAP_ASSIGN_OR_RETURN(saved.inputs, context_.boundaries->Take(Entry(block, index)));
    }
    if (!Keeps(block)) {
      saved.outputs = ForwardWithGraph(block, saved.inputs, *lane.conditioning);
    }
    std::vector<at::Tensor> outputs, output_grads;
    for (size_t i = 0; i < saved.outputs.size(); ++i) {
      if (!lane.grads[i].defined()) continue;
      outputs.push_back(std::move(saved.outputs[i]));
      output_grads.push_back(std::move(lane.grads[i]));
    }
    saved.outputs.clear();
    if (context_.base != nullptr) {
      BLOCKSWAP_RETURN_IF_ERROR(context_.base->BeginBlock(block));
    }
    torch::autograd::backward(outputs, output_grads);
    if (context_.base != nullptr) BLOCKSWAP_RETURN_IF_ERROR(context_.base->EndBlock(block));
    for (at::Tensor& input : saved.inputs) input = input.grad();
    lane.grads = std::move(saved.inputs);
    return absl::OkStatus();
  }

  absl::Status ReserveBoundaries() {
    rank_away_.assign(static_cast<size_t>(num_blocks()), -1);
    int64_t num_away = 0;
    for (int block = 0; block < num_blocks() && context_.boundaries != nullptr; ++block) {
      const bool goes = placement(block).offloads_boundary && !Keeps(block);
      if (goes) rank_away_[static_cast<size_t>(block)] = num_away++;
    }
    if (num_away == 0) return absl::OkStatus();
    int64_t bytes = 0;
    for (const Lane& lane : lanes_) {
      bytes = std::max(bytes, BoundaryStore::EntryBytes(lane.streams));
    }
    store_used_ = true;
    return context_.boundaries->Reserve(num_away * static_cast<int64_t>(lanes_.size()), bytes);
  }

  // Starts the way back of the inputs of `block`, one block ahead of their backward.
  absl::Status FetchBoundaries(int block) {
    if (block < 0 || !GoesAway(block)) return absl::OkStatus();
    for (size_t lane = 0; lane < lanes_.size(); ++lane) {
      BLOCKSWAP_RETURN_IF_ERROR(context_.boundaries->Fetch(Entry(block, lane)));
    }
    return absl::OkStatus();
  }

  const WalkContext& context_;
  const StopFunction& stop_;
  std::vector<BlockLease> leases_;  // by block
  std::vector<Lane> lanes_;         // after the leases: their graphs point to them
  std::vector<int64_t> rank_away_;  // by block: place among those whose inputs go away, or -1
  bool store_used_ = false;
};

const StopFunction& NeverStop() {
  static const auto* const kNever = new StopFunction([] { return absl::OkStatus(); });
  return *kNever;
}

Lane StartLane(const WalkContext& context, const ModelInputs& inputs,
               bool want_hidden_states_grad) {
  Lane lane;
  lane.inputs = inputs;
  if (want_hidden_states_grad) {
    lane.inputs.hidden_states_BSC = inputs.hidden_states_BSC.detach().requires_grad_();
  }
  lane.conditioning = context.model->Condition(lane.inputs);
  const at::AutoGradMode mode(want_hidden_states_grad);
  Streams embedded = context.model->Embed(lane.inputs);
  for (const at::Tensor& stream : embedded) lane.streams.push_back(stream.detach());
  if (want_hidden_states_grad) lane.embedded = std::move(embedded);
  return lane;
}

// Output, loss, and the gradients of the last block's outputs.
absl::Status Turn(const WalkContext& context, const LossFunction& loss, Lane& lane,
                  at::Tensor* result) {
  const at::AutoGradMode with_gradient(true);
  Streams last = std::move(lane.streams);
  lane.streams.clear();
  for (at::Tensor& stream : last) stream = stream.detach().requires_grad_();
  at::Tensor output = context.model->Head(last, *lane.conditioning);
  *result = output.detach();
  BLOCKSWAP_ASSIGN_OR_RETURN(const at::Tensor output_grad, loss(*result));
  torch::autograd::backward({output}, {output_grad.to(output.scalar_type())});
  for (at::Tensor& stream : last) {
    lane.grads.push_back(stream.grad());
    stream = at::Tensor();
  }
  return absl::OkStatus();
}

absl::Status Train(const WalkContext& context, absl::Span<const WalkItem> items,
                   bool want_hidden_states_grad, const StopFunction& stop,
                   std::vector<WalkResult>* results) {
  const absl::Time start = absl::Now();
  Walk walk(context, stop);
  for (const WalkItem& item : items) {
    walk.lanes().push_back(StartLane(context, *item.inputs, want_hidden_states_grad));
  }
  BLOCKSWAP_RETURN_IF_ERROR(walk.Forward());
  const absl::Duration forward = absl::Now() - start;
  for (size_t i = 0; i < items.size(); ++i) {
    WalkResult& result = results->emplace_back();
    result.forward = forward;
    BLOCKSWAP_RETURN_IF_ERROR(Turn(context, items[i].loss, walk.lanes()[i], &result.output));
    // Only a caller that asks for the gradient of the inputs looks at the output.
    if (!want_hidden_states_grad && items.size() > 1) result.output = at::Tensor();
  }
  BLOCKSWAP_RETURN_IF_ERROR(walk.Backward());
  for (size_t i = 0; i < items.size(); ++i) {
    Lane& lane = walk.lanes()[i];
    if (context.base != nullptr) {
      context.model->BackwardEdges(lane.inputs, *lane.conditioning, lane.grads);
    }
    if (want_hidden_states_grad) {
      torch::autograd::backward({lane.embedded[0]}, {lane.grads[0]});
      (*results)[i].hidden_states_grad = lane.inputs.hidden_states_BSC.grad();
    }
    (*results)[i].backward = absl::Now() - start - forward;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<WalkResult>> TrainContained(const WalkContext& context,
                                                       absl::Span<const WalkItem> items,
                                                       bool want_hidden_states_grad,
                                                       const StopFunction& stop) {
  std::vector<WalkResult> results;
  BLOCKSWAP_RETURN_IF_ERROR(RunContained([&] {
    const MemoryScope scope(offload::MemoryTag::kActivations);
    return Train(context, items, want_hidden_states_grad, stop == nullptr ? NeverStop() : stop,
                 &results);
  }));
  return results;
}

absl::Status ForwardLanes(const WalkContext& context, absl::Span<const ModelInputs> inputs,
                          std::vector<at::Tensor>* outputs) {
  const MemoryScope scope(offload::MemoryTag::kActivations);
  const at::NoGradGuard no_grad;
  Walk walk(context, NeverStop());
  for (const ModelInputs& one : inputs) walk.lanes().push_back(StartLane(context, one, false));
  BLOCKSWAP_RETURN_IF_ERROR(walk.ForwardOnly());
  for (Lane& lane : walk.lanes()) {
    outputs->push_back(context.model->Head(lane.streams, *lane.conditioning));
    lane.streams.clear();
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<WalkResult> WalkForward(const WalkContext& context, const ModelInputs& inputs) {
  const absl::Time start = absl::Now();
  BLOCKSWAP_ASSIGN_OR_RETURN(std::vector<at::Tensor> outputs,
                             WalkForwardTogether(context, absl::MakeConstSpan(&inputs, 1)));
  WalkResult result;
  result.output = std::move(outputs.front());
  result.forward = absl::Now() - start;
  return result;
}

absl::StatusOr<std::vector<at::Tensor>> WalkForwardTogether(const WalkContext& context,
                                                            absl::Span<const ModelInputs> inputs) {
  std::vector<at::Tensor> outputs;
  BLOCKSWAP_RETURN_IF_ERROR(RunContained([&] { return ForwardLanes(context, inputs, &outputs); }));
  return outputs;
}

absl::StatusOr<WalkResult> WalkTraining(const WalkContext& context, const ModelInputs& inputs,
                                        const LossFunction& loss, bool want_hidden_states_grad,
                                        const StopFunction& stop) {
  const WalkItem item{&inputs, loss};
  BLOCKSWAP_ASSIGN_OR_RETURN(
      std::vector<WalkResult> results,
      TrainContained(context, absl::MakeConstSpan(&item, 1), want_hidden_states_grad, stop));
  return std::move(results.front());
}

absl::StatusOr<WalkTimes> WalkTrainingTogether(const WalkContext& context,
                                               absl::Span<const WalkItem> items,
                                               const StopFunction& stop) {
  BLOCKSWAP_ASSIGN_OR_RETURN(
      const std::vector<WalkResult> results,
      TrainContained(context, items, /*want_hidden_states_grad=*/false, stop));
  return WalkTimes{results.back().forward, results.back().backward};
}

}  // namespace blockswap::worker
