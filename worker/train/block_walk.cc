// SPDX-License-Identifier: Apache-2.0
#include "worker/train/block_walk.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "offload/base/status_macros.h"
#include "worker/kernels/device_memory.h"
#include "worker/kernels/torch_boundary.h"

namespace blockswap::worker {
namespace {

using offload::BlockLease;
using offload::Direction;

// One pass over the blocks of a context with one conditioning.
class Walk {
 public:
  Walk(const WalkContext& context, const std::function<absl::Status()>& stop)
      : context_(context), stop_(stop) {}

  // Leaves the inputs of every block in boundaries() when `keep_boundaries`.
  absl::StatusOr<Streams> Forward(Streams streams, const Conditioning& conditioning,
                                  bool keep_boundaries) {
    const at::NoGradGuard no_grad;
    for (int block = 0; block < context_.model->num_blocks(); ++block) {
      BLOCKSWAP_RETURN_IF_ERROR(stop_());
      if (keep_boundaries) boundaries_.push_back(streams);
      BLOCKSWAP_ASSIGN_OR_RETURN(const BlockLease lease,
                                 context_.swapper->Acquire(block, Direction::kForward));
      streams = ForwardBlock(block, streams, conditioning, lease);
    }
    return streams;
  }

  // Takes the gradient of the last block's outputs back to the first block's inputs. A stream
  // without a gradient is undefined.
  absl::StatusOr<Streams> Backward(Streams grads, const Conditioning& conditioning) {
    for (int block = context_.model->num_blocks() - 1; block >= 0; --block) {
      BLOCKSWAP_RETURN_IF_ERROR(stop_());
      BLOCKSWAP_ASSIGN_OR_RETURN(const BlockLease lease,
                                 context_.swapper->Acquire(block, Direction::kBackward));
      // The lease ends after the block's own backward: it reads the weights again (see F001 in the
      // tests).
      grads = BackwardBlock(block, std::exchange(boundaries_.back(), {}), std::move(grads),
                            conditioning, lease);
      boundaries_.pop_back();
    }
    return grads;
  }

 private:
  Streams ForwardBlock(int block, const Streams& streams, const Conditioning& conditioning,
                       const BlockLease& lease) const {
    const BlockWeights weights =
        WeightsOfLease(lease, context_.description->blocks[static_cast<size_t>(block)],
                       context_.description->dtype, context_.device);
    static const AdapterBlock kNoAdapter;
    const AdapterBlock& adapter =
        context_.adapter == nullptr ? kNoAdapter : context_.adapter->block(block);
    return context_.model->ForwardBlock(block, streams, conditioning, weights, adapter);
  }

  Streams BackwardBlock(int block, Streams inputs, Streams grads, const Conditioning& conditioning,
                        const BlockLease& lease) const {
    std::vector<at::Tensor> outputs, output_grads;
    {
      const at::AutoGradMode with_gradient(true);
      for (at::Tensor& input : inputs) input = input.detach().requires_grad_();
      const Streams streams = ForwardBlock(block, inputs, conditioning, lease);
      for (size_t i = 0; i < streams.size(); ++i) {
        if (!grads[i].defined()) continue;
        outputs.push_back(streams[i]);
        output_grads.push_back(std::move(grads[i]));
      }
    }
    torch::autograd::backward(outputs, output_grads);
    for (at::Tensor& input : inputs) input = input.grad();
    return inputs;
  }

  const WalkContext& context_;
  const std::function<absl::Status()>& stop_;
  std::vector<Streams> boundaries_;
};

const std::function<absl::Status()>& NeverStop() {
  static const auto* const kNever =
      new std::function<absl::Status()>([] { return absl::OkStatus(); });
  return *kNever;
}

// The embedding as the root of the hidden states' gradient, or without one.
Streams Embed(const WalkContext& context, const ModelInputs& inputs, bool with_gradient) {
  const at::AutoGradMode mode(with_gradient);
  return context.model->Embed(inputs);
}

absl::Status Train(const WalkContext& context, const ModelInputs& inputs, const LossFunction& loss,
                   bool want_hidden_states_grad, const std::function<absl::Status()>& stop,
                   WalkResult* result) {
  const absl::Time start = absl::Now();
  ModelInputs own = inputs;
  if (want_hidden_states_grad)
    own.hidden_states_BSC = inputs.hidden_states_BSC.detach().requires_grad_();
  const std::unique_ptr<Conditioning> conditioning = context.model->Condition(own);
  const Streams embedded = Embed(context, own, want_hidden_states_grad);
  Streams first;
  for (const at::Tensor& stream : embedded) first.push_back(stream.detach());

  Walk walk(context, stop);
  BLOCKSWAP_ASSIGN_OR_RETURN(
      Streams last, walk.Forward(std::move(first), *conditioning, /*keep_boundaries=*/true));
  Streams grads;
  {
    const at::AutoGradMode with_gradient(true);
    for (at::Tensor& stream : last) stream = stream.detach().requires_grad_();
    at::Tensor output = context.model->Head(last, *conditioning);
    result->output = output.detach();
    result->forward = absl::Now() - start;
    BLOCKSWAP_ASSIGN_OR_RETURN(const at::Tensor output_grad, loss(result->output));
    torch::autograd::backward({output}, {output_grad.to(output.scalar_type())});
    for (at::Tensor& stream : last) {
      grads.push_back(stream.grad());
      stream = at::Tensor();
    }
  }
  BLOCKSWAP_ASSIGN_OR_RETURN(grads, walk.Backward(std::move(grads), *conditioning));
  if (want_hidden_states_grad) {
    torch::autograd::backward({embedded[0]}, {grads[0]});
    result->hidden_states_grad = own.hidden_states_BSC.grad();
  }
  result->backward = absl::Now() - start - result->forward;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<WalkResult> WalkForward(const WalkContext& context, const ModelInputs& inputs) {
  WalkResult result;
  BLOCKSWAP_RETURN_IF_ERROR(RunContained([&]() -> absl::Status {
    const MemoryScope scope(offload::MemoryTag::kActivations);
    const at::NoGradGuard no_grad;
    const absl::Time start = absl::Now();
    const std::unique_ptr<Conditioning> conditioning = context.model->Condition(inputs);
    Walk walk(context, NeverStop());
    BLOCKSWAP_ASSIGN_OR_RETURN(
        const Streams last,
        walk.Forward(context.model->Embed(inputs), *conditioning, /*keep_boundaries=*/false));
    result.output = context.model->Head(last, *conditioning);
    result.forward = absl::Now() - start;
    return absl::OkStatus();
  }));
  return result;
}

absl::StatusOr<WalkResult> WalkTraining(const WalkContext& context, const ModelInputs& inputs,
                                        const LossFunction& loss, bool want_hidden_states_grad,
                                        const std::function<absl::Status()>& stop) {
  WalkResult result;
  BLOCKSWAP_RETURN_IF_ERROR(RunContained([&] {
    const MemoryScope scope(offload::MemoryTag::kActivations);
    return Train(context, inputs, loss, want_hidden_states_grad,
                 stop == nullptr ? NeverStop() : stop, &result);
  }));
  return result;
}

}  // namespace blockswap::worker
