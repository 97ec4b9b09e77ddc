// SPDX-License-Identifier: Apache-2.0
#include "worker/model/linear.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <memory>
#include <utility>
#include <vector>

#include "worker/model/graph_op.h"

namespace blockswap::worker {
namespace {

constexpr char kTanh[] = "tanh";

at::Tensor Rows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

// Adds scale * delta to a view of the fp32 gradient buffer.
void Accumulate(const at::Tensor& gradient, const at::Tensor& left, const at::Tensor& right,
                double scale) {
  if (left.scalar_type() == gradient.scalar_type()) {
    gradient.addmm_(left, right, 1.0, scale);
  } else {
    gradient.add_(at::mm(left, right), scale);
  }
}

at::Tensor LowGradient(const LoraModule& adapter, const at::Tensor& grad) {
  return at::mm(grad, adapter.up.to(grad.scalar_type())).mul_(adapter.scale);
}

class LinearOp final : public GraphOp {
 public:
  LinearOp(const LinearRef& linear, InputActivation activation, at::Tensor x, bool wants_input_grad)
      : linear_(linear),
        activation_(activation),
        x_(std::move(x)),
        wants_input_grad_(wants_input_grad) {}

  const char* name() const override { return "LinearOp"; }

  at::Tensor Forward() {
    at::Tensor y = LinearForward(Activated(), linear_, &low_);
    sizes_ = x_.sizes().vec();
    std::vector<int64_t> sizes = sizes_;
    sizes.back() = y.size(-1);
    // Where nothing trains, backward needs the input only to differentiate the activation.
    if (!linear_.adapter_trains()) low_ = at::Tensor();
    if (!linear_.trains() && activation_ == InputActivation::kNone) x_ = at::Tensor();
    return y.view(sizes);
  }

  std::vector<at::Tensor> Backward(const std::vector<at::Tensor>& output_grads) override {
    if (!output_grads[0].defined()) return {at::Tensor()};
    const at::Tensor grad = Rows(output_grads[0]);
    at::Tensor low_grad;
    if (linear_.weight_trains()) AddWeightGradients(linear_, Activated(), grad);
    if (linear_.adapter_trains()) {
      low_grad = AddAdapterGradients(*linear_.adapter, Activated(), low_, grad);
    } else if (linear_.adapted()) {
      low_grad = LowGradient(*linear_.adapter, grad);
    }
    if (!wants_input_grad_) return {at::Tensor()};
    at::Tensor input_grad = at::mm(grad, linear_.weight.Get());
    if (linear_.adapted())
      input_grad.addmm_(low_grad, linear_.adapter->down.to(grad.scalar_type()));
    if (activation_ == InputActivation::kGeluTanh) {
      input_grad = at::gelu_backward(input_grad, Rows(x_), kTanh);
    }
    return {input_grad.view(sizes_)};
  }

  std::vector<at::Tensor> SavedTensors() const override { return {x_, low_}; }

 private:
  at::Tensor Activated() const {
    return activation_ == InputActivation::kGeluTanh ? at::gelu(Rows(x_), kTanh) : Rows(x_);
  }

  LinearRef linear_;
  InputActivation activation_;
  at::Tensor x_;    // input before its activation
  at::Tensor low_;  // [rows, rank]
  std::vector<int64_t> sizes_;
  bool wants_input_grad_;
};

}  // namespace

at::Tensor LinearForward(const at::Tensor& x, const LinearRef& linear, at::Tensor* low) {
  at::Tensor y = at::addmm(linear.bias.Get(), x, linear.weight.Get().t());
  if (linear.adapted()) AddAdapterOutput(*linear.adapter, x, y, low);
  return y;
}

void AddAdapterOutput(const LoraModule& adapter, const at::Tensor& x, const at::Tensor& y,
                      at::Tensor* low) {
  *low = at::mm(x, adapter.down.to(x.scalar_type()).t());
  y.addmm_(*low, adapter.up.to(x.scalar_type()).t(), 1.0, adapter.scale);
}

at::Tensor AddAdapterGradients(const LoraModule& adapter, const at::Tensor& x,
                               const at::Tensor& low, const at::Tensor& grad) {
  const at::Tensor low_grad = LowGradient(adapter, grad);
  Accumulate(adapter.up_grad, grad.t(), low, adapter.scale);
  Accumulate(adapter.down_grad, low_grad.t(), x, 1.0);
  return low_grad;
}

void AddWeightGradients(const LinearRef& linear, const at::Tensor& x, const at::Tensor& grad) {
  const at::Tensor& weight_grad = linear.weight.gradient();
  const at::ScalarType type = weight_grad.scalar_type();
  weight_grad.addmm_(grad.to(type).t(), x.to(type));
  linear.bias.gradient().add_(grad.sum(0, /*keepdim=*/false, at::kFloat));
}

at::Tensor ApplyLinear(const at::Tensor& x, const LinearRef& linear, InputActivation activation) {
  const bool input_requires_grad = x.requires_grad();
  auto op = std::make_unique<LinearOp>(linear, activation, x, input_requires_grad);
  at::Tensor y;
  {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    y = op->Forward();
  }
  RecordOp(std::move(op), {x}, {y}, linear.trains());
  return y;
}

}  // namespace blockswap::worker
