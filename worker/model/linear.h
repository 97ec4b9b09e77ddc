// SPDX-License-Identifier: Apache-2.0
// Linear layers over weights that are fetched again in backward: frozen, with a LoRA adapter, or
// trained themselves.
#ifndef BLOCKSWAP_WORKER_MODEL_LINEAR_H_
#define BLOCKSWAP_WORKER_MODEL_LINEAR_H_

#include <ATen/core/Tensor.h>

#include "worker/model/model.h"

namespace blockswap::worker {

// What happens to a linear's input on its way in. The pre-activation is what is kept for backward,
// so the wide hidden state of an MLP is held once and its activation is computed again.
enum class InputActivation { kNone, kGeluTanh };

// One linear of a block: weight [out, in], bias [out], and its adapter, if any. Weight and bias
// train together or not at all (WeightRef::gradient).
struct LinearRef {
  WeightRef weight, bias;
  const LoraModule* adapter = nullptr;  // null or absent: frozen only

  bool adapted() const { return adapter != nullptr && adapter->present; }
  bool adapter_trains() const { return adapted() && adapter->down_grad.defined(); }
  bool weight_trains() const { return weight.trains(); }
  bool trains() const { return adapter_trains() || weight_trains(); }
};

// y = a(x) W^T + b + scale * (a(x) down^T) up^T. Backward asks the WeightRef again, returns the
// gradient of x, and adds the adapter's gradients to LoraModule::down_grad and up_grad and a
// trained weight's to its WeightRef: no weight and no copy of one is kept in between. Products run
// in x's type; adapter gradients accumulate in fp32.
at::Tensor ApplyLinear(const at::Tensor& x, const LinearRef& linear,
                       InputActivation activation = InputActivation::kNone);

// The pieces of it that other operations are made of. REQUIRES: below autograd; `x` and `grad` are
// [rows, features]. `low` is set to x down^T where there is an adapter.
at::Tensor LinearForward(const at::Tensor& x, const LinearRef& linear, at::Tensor* low);
// Adds scale * (x down^T) up^T to `y`, the output of the frozen part.
void AddAdapterOutput(const LoraModule& adapter, const at::Tensor& x, const at::Tensor& y,
                      at::Tensor* low);
// Adds the adapter's gradients for output gradient `grad`; returns scale * grad up, which is also
// what flows through `down`.
at::Tensor AddAdapterGradients(const LoraModule& adapter, const at::Tensor& x,
                               const at::Tensor& low, const at::Tensor& grad);
// Adds the gradients of a trained weight and its bias, in the type of the buffers they go to.
void AddWeightGradients(const LinearRef& linear, const at::Tensor& x, const at::Tensor& grad);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_MODEL_LINEAR_H_
