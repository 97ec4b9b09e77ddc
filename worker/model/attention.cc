// SPDX-License-Identifier: Apache-2.0
#include "worker/model/attention.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "worker/model/graph_op.h"

namespace blockswap::worker {
namespace {

std::optional<at::Tensor> OptionalTensor(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional<at::Tensor>(tensor) : std::nullopt;
}

// Scaled dot product attention with its backward at hand. On the CPU the flash kernels are called
// directly; elsewhere LibTorch picks the kernel and keeps a small graph of its own over detached
// inputs, which holds activations only.
class AttentionKernel {
 public:
  // [B, H, L, D]; the result is a view whose transpose(1, 2) is contiguous or not, as the kernel
  // likes.
  at::Tensor Forward(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const at::Tensor& key_bias) {
    query_ = query, key_ = key, value_ = value, key_bias_ = key_bias;
    if (query.is_cpu()) {
      std::tie(output_, log_sum_exp_) = at::_scaled_dot_product_flash_attention_for_cpu(
          query_, key_, value_, /*dropout_p=*/0.0, /*is_causal=*/false, OptionalTensor(key_bias));
      return output_;
    }
    const c10::impl::ForceDispatchKeyGuard with_autograd{
        c10::impl::LocalDispatchKeySet(c10::impl::PODLocalDispatchKeySet{})};
    if (GradientsWanted()) {
      for (at::Tensor* leaf : {&query_, &key_, &value_}) *leaf = leaf->detach().requires_grad_();
    }
    output_ = at::scaled_dot_product_attention(query_, key_, value_, OptionalTensor(key_bias));
    return output_.detach();
  }

  std::array<at::Tensor, 3> Backward(const at::Tensor& grad) {
    if (query_.is_cpu()) {
      auto [query_grad, key_grad, value_grad] =
          at::_scaled_dot_product_flash_attention_for_cpu_backward(
              grad, query_, key_, value_, output_, log_sum_exp_, /*dropout_p=*/0.0,
              /*is_causal=*/false, OptionalTensor(key_bias_));
      return {query_grad, key_grad, value_grad};
    }
    const c10::impl::ForceDispatchKeyGuard with_autograd{
        c10::impl::LocalDispatchKeySet(c10::impl::PODLocalDispatchKeySet{})};
    const auto grads = torch::autograd::grad({output_}, {query_, key_, value_}, {grad});
    return {grads[0], grads[1], grads[2]};
  }

  std::vector<at::Tensor> SavedTensors() const {
    return {query_, key_, value_, key_bias_, output_, log_sum_exp_};
  }

 private:
  at::Tensor query_, key_, value_, key_bias_, output_, log_sum_exp_;
};

class JointAttentionOp final : public GraphOp {
 public:
  JointAttentionOp(AttentionProjections text, AttentionProjections image,
                   const JointAttentionSetting& setting)
      : text_(std::move(text)), image_(std::move(image)), setting_(setting) {}

  const char* name() const override { return "JointAttentionOp"; }

  JointAttentionOutput Forward() {
    const at::Tensor& like = image_.query_BLE;
    batch_ = like.size(0), text_tokens_ = text_.query_BLE.size(1), image_tokens_ = like.size(1);
    width_ = like.size(2);
    const std::vector<int64_t> joint = {batch_, text_tokens_ + image_tokens_, setting_.num_heads,
                                        width_ / setting_.num_heads};
    at::Tensor query = at::empty(joint, like.options()), key = at::empty(joint, like.options());
    NormRotate(text_, 0, query, key);
    NormRotate(image_, text_tokens_, query, key);
    const at::Tensor value = at::cat({text_.value_BLE, image_.value_BLE}, 1).view(joint);
    const at::Tensor output = kernel_
                                  .Forward(query.transpose(1, 2), key.transpose(1, 2),
                                           value.transpose(1, 2), setting_.key_bias_B11L)
                                  .transpose(1, 2)
                                  .reshape({batch_, text_tokens_ + image_tokens_, width_});
    // Values live on in the joint buffer only.
    text_.value_BLE = at::Tensor();
    image_.value_BLE = at::Tensor();
    return {output.narrow(1, 0, text_tokens_), output.narrow(1, text_tokens_, image_tokens_)};
  }

  std::vector<at::Tensor> Backward(const std::vector<at::Tensor>& output_grads) override {
    if (!output_grads[0].defined() && !output_grads[1].defined()) return std::vector<at::Tensor>(6);
    const auto part = [&](const at::Tensor& grad, int64_t tokens) {
      return grad.defined() ? grad : at::zeros({batch_, tokens, width_}, text_.query_BLE.options());
    };
    const at::Tensor joint_grad =
        at::cat({part(output_grads[0], text_tokens_), part(output_grads[1], image_tokens_)}, 1)
            .view({batch_, text_tokens_ + image_tokens_, setting_.num_heads, -1})
            .transpose(1, 2);
    std::array<at::Tensor, 3> grads = kernel_.Backward(joint_grad);
    for (at::Tensor& grad : grads) grad = grad.transpose(1, 2);
    std::vector<at::Tensor> input_grads;
    Differentiate(text_, 0, text_tokens_, grads, &input_grads);
    Differentiate(image_, text_tokens_, image_tokens_, grads, &input_grads);
    return input_grads;
  }

  std::vector<at::Tensor> SavedTensors() const override {
    std::vector<at::Tensor> saved = kernel_.SavedTensors();
    for (const AttentionProjections* stream : {&text_, &image_}) {
      saved.insert(saved.end(), {stream->query_BLE, stream->key_BLE, stream->value_BLE});
    }
    return saved;
  }

 private:
  at::Tensor Heads(const at::Tensor& x_BLE) const {
    return x_BLE.view({x_BLE.size(0), x_BLE.size(1), setting_.num_heads, -1});
  }

  void NormRotate(const AttentionProjections& stream, int64_t first, const at::Tensor& query,
                  const at::Tensor& key) const {
    const int64_t tokens = stream.query_BLE.size(1);
    const RotaryTable table = setting_.table.Tokens(first, tokens);
    HeadNormRotary(Heads(stream.query_BLE), stream.query_norm.Get(), table, setting_.norm_eps,
                   query.narrow(1, first, tokens));
    HeadNormRotary(Heads(stream.key_BLE), stream.key_norm.Get(), table, setting_.norm_eps,
                   key.narrow(1, first, tokens));
  }

  void Differentiate(const AttentionProjections& stream, int64_t first, int64_t tokens,
                     const std::array<at::Tensor, 3>& joint_grads,
                     std::vector<at::Tensor>* input_grads) const {
    const std::vector<int64_t> sizes = {batch_, tokens, width_};
    const RotaryTable table = setting_.table.Tokens(first, tokens);
    const auto normed = [&](const at::Tensor& grad, const at::Tensor& x, const WeightRef& norm) {
      if (norm.trains()) {
        norm.gradient().add_(HeadNormWeightGradient(grad.narrow(1, first, tokens), Heads(x), table,
                                                    setting_.norm_eps));
      }
      return HeadNormRotaryBackward(grad.narrow(1, first, tokens), Heads(x), norm.Get(), table,
                                    setting_.norm_eps)
          .view(sizes);
    };
    input_grads->push_back(normed(joint_grads[0], stream.query_BLE, stream.query_norm));
    input_grads->push_back(normed(joint_grads[1], stream.key_BLE, stream.key_norm));
    input_grads->push_back(joint_grads[2].narrow(1, first, tokens).reshape(sizes));
  }

  AttentionProjections text_, image_;
  JointAttentionSetting setting_;
  AttentionKernel kernel_;
  int64_t batch_ = 0, text_tokens_ = 0, image_tokens_ = 0, width_ = 0;
};

}  // namespace

JointAttentionOutput JointAttention(const AttentionProjections& text,
                                    const AttentionProjections& image,
                                    const JointAttentionSetting& setting) {
  auto op = std::make_unique<JointAttentionOp>(text, image, setting);
  JointAttentionOutput output;
  {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    output = op->Forward();
  }
  RecordOp(std::move(op),
           {text.query_BLE, text.key_BLE, text.value_BLE, image.query_BLE, image.key_BLE,
            image.value_BLE},
           {output.text_BTE, output.image_BSE}, /*trains=*/false);
  return output;
}

}  // namespace blockswap::worker
