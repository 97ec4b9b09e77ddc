// SPDX-License-Identifier: Apache-2.0
// AdaLN modulation: shift, scale and gate rows from the time embedding, layer norm with them, and
// gated residuals.
//
// Shape legend: B batch, G time groups of a stream, K rows of a modulation (6 in a block, 2 at the
// end), L tokens, D width.
#ifndef BLOCKSWAP_WORKER_MODEL_MODULATION_H_
#define BLOCKSWAP_WORKER_MODEL_MODULATION_H_

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "worker/model/linear.h"

namespace blockswap::worker {

// Which tokens of a stream share a time: consecutive runs, one per group. Qwen's zero_cond_t has
// two (target, references).
using TimeGroups = std::vector<int64_t>;  // token counts; their sum is L

// The modulation of one stream in one block. Uses write the gradients of their rows into `grads`
// (where an adapter trains on the linear); the graph edge through `rows` only orders the linear's
// backward after them.
struct Modulation {
  at::Tensor rows_BGKD;
  at::Tensor grads_BGKD;  // fp32, zero; undefined when nothing trains on the linear
  TimeGroups groups;
};

// rows = linear(activated_time), reshaped to K rows. `cached` (may be null): filled on the first
// call of a pass and used afterwards, so that the recompute does not read the large weight again;
// the bits are the same. `input_grad_BGD` (fp32, of the input's shape; undefined: the time is
// frozen): where the backward of a linear that trains adds the gradient of its input.
// `frozen` (where defined): what the linear gives without its adapter, [B * G, K * D], evaluated
// elsewhere (Note [Host modulation]); weight and bias are then not read and `frozen` becomes the
// rows.
Modulation MakeModulation(const at::Tensor& activated_time_BGD, const LinearRef& linear,
                          int64_t num_rows, TimeGroups groups, at::Tensor* cached,
                          const at::Tensor& input_grad_BGD = {}, const at::Tensor& frozen = {});

// LayerNorm without affine (eps), times 1 + row `scale_row`, plus row `shift_row`.
at::Tensor ModulatedNorm(const at::Tensor& x_BLD, const Modulation& modulation, int64_t shift_row,
                         int64_t scale_row, double eps);

// x + row `gate_row` * branch.
at::Tensor GatedResidual(const at::Tensor& x_BLD, const at::Tensor& branch_BLD,
                         const Modulation& modulation, int64_t gate_row);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_MODEL_MODULATION_H_
