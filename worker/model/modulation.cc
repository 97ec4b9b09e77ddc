// SPDX-License-Identifier: Apache-2.0
#include "worker/model/modulation.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <memory>
#include <tuple>
#include <utility>

#include "worker/model/graph_op.h"

namespace blockswap::worker {
namespace {

// Calls visit(batch, group, first token, token count) for each run of tokens with one modulation.
template <typename Visit>
void ForEachRun(int64_t batch, const TimeGroups& groups, const Visit& visit) {
  for (int64_t b = 0; b < batch; ++b) {
    int64_t first = 0;
    for (size_t g = 0; g < groups.size(); ++g) {
      visit(b, static_cast<int64_t>(g), first, groups[g]);
      first += groups[g];
    }
  }
}

// The linear's output, from its frozen part where that is known.
at::Tensor AllRows(const at::Tensor& input, const LinearRef& linear, const at::Tensor& frozen,
                   at::Tensor* low) {
  if (!frozen.defined()) return LinearForward(input, linear, low);
  if (linear.adapted()) AddAdapterOutput(*linear.adapter, input, frozen, low);
  return frozen;
}

bool OneRun(int64_t batch, const TimeGroups& groups) { return batch == 1 && groups.size() == 1; }

at::Tensor Row(const at::Tensor& rows_BGKD, int64_t b, int64_t g, int64_t row) {
  return rows_BGKD.select(0, b).select(0, g).select(0, row);
}

at::Tensor Run(const at::Tensor& x_BLD, int64_t b, int64_t first, int64_t count) {
  return x_BLD.select(0, b).narrow(0, first, count);
}

// The rows of a modulation as the output of its linear. Its backward runs after all uses, reads the
// gradients they wrote, and trains the linear or its adapter. The time embedding is shared by all
// blocks, so its gradient leaves the graph: it is summed up where the conditioning says.
class ModulationOp final : public GraphOp {
 public:
  ModulationOp(LinearRef linear, at::Tensor input, at::Tensor low, at::Tensor grads,
               at::Tensor input_grad)
      : linear_(std::move(linear)),
        input_(std::move(input)),
        low_(std::move(low)),
        grads_(std::move(grads)),
        input_grad_(std::move(input_grad)) {}

  const char* name() const override { return "ModulationOp"; }
  std::vector<at::Tensor> Backward(const std::vector<at::Tensor>&) override {
    const at::Tensor grads = grads_.view({input_.size(0), -1});
    // A row or two: fp32 costs nothing here.
    if (linear_.adapter_trains())
      AddAdapterGradients(*linear_.adapter, input_.to(at::kFloat), low_.to(at::kFloat), grads);
    if (linear_.weight_trains()) AddWeightGradients(linear_, input_, grads);
    if (input_grad_.defined()) {
      const at::Tensor product = at::mm(grads.to(input_.scalar_type()), linear_.weight.Get());
      input_grad_.add_(product.view(input_grad_.sizes()));
    }
    return {};
  }
  std::vector<at::Tensor> SavedTensors() const override {
    return {input_, low_, grads_, input_grad_};
  }

 private:
  LinearRef linear_;
  at::Tensor input_, low_, grads_, input_grad_;
};

// One layer norm per run, with 1 + scale and shift as its affine weights: a single kernel forward
// and backward.
class ModulatedNormOp final : public GraphOp {
 public:
  ModulatedNormOp(at::Tensor x, Modulation modulation, int64_t shift_row, int64_t scale_row,
                  double eps)
      : x_(std::move(x)),
        modulation_(std::move(modulation)),
        shift_row_(shift_row),
        scale_row_(scale_row),
        eps_(eps) {}

  const char* name() const override { return "ModulatedNormOp"; }

  at::Tensor Forward() {
    if (OneRun(x_.size(0), modulation_.groups)) return Normalise(x_, 0, 0);
    at::Tensor y = at::empty_like(x_, at::MemoryFormat::Contiguous);
    ForEachRun(x_.size(0), modulation_.groups,
               [&](int64_t b, int64_t g, int64_t first, int64_t count) {
                 Run(y, b, first, count).copy_(Normalise(Run(x_, b, first, count), b, g));
               });
    return y;
  }

  std::vector<at::Tensor> Backward(const std::vector<at::Tensor>& output_grads) override {
    if (!output_grads[0].defined()) return {at::Tensor(), at::Tensor()};
    const at::Tensor grad = output_grads[0].contiguous();
    if (OneRun(x_.size(0), modulation_.groups))
      return {Differentiate(grad, x_, 0, 0, 0), at::Tensor()};
    at::Tensor input_grad = at::empty_like(x_, at::MemoryFormat::Contiguous);
    size_t run = 0;
    ForEachRun(
        x_.size(0), modulation_.groups, [&](int64_t b, int64_t g, int64_t first, int64_t count) {
          Run(input_grad, b, first, count)
              .copy_(
                  Differentiate(Run(grad, b, first, count), Run(x_, b, first, count), b, g, run++));
        });
    return {input_grad, at::Tensor()};
  }

  std::vector<at::Tensor> SavedTensors() const override {
    std::vector<at::Tensor> saved = {x_, modulation_.rows_BGKD, modulation_.grads_BGKD};
    saved.insert(saved.end(), means_.begin(), means_.end());
    saved.insert(saved.end(), rstds_.begin(), rstds_.end());
    return saved;
  }

 private:
  // On the CPU fp32 affine weights keep the statistics in fp32 beside 16-bit inputs; the CUDA
  // kernel does so itself and wants one type.
  at::Tensor Affine(int64_t b, int64_t g, int64_t row) const {
    const at::Tensor values = Row(modulation_.rows_BGKD, b, g, row);
    return x_.is_cpu() ? values.to(at::kFloat) : values;
  }
  at::Tensor Scale(int64_t b, int64_t g) const { return Affine(b, g, scale_row_).add(1.0); }

  at::Tensor Normalise(const at::Tensor& x, int64_t b, int64_t g) {
    auto [y, mean, rstd] =
        at::native_layer_norm(x, {x.size(-1)}, Scale(b, g), Affine(b, g, shift_row_), eps_);
    means_.push_back(std::move(mean));
    rstds_.push_back(std::move(rstd));
    return y;
  }

  at::Tensor Differentiate(const at::Tensor& grad, const at::Tensor& x, int64_t b, int64_t g,
                           size_t run) const {
    const bool trains = modulation_.grads_BGKD.defined();
    auto [input_grad, scale_grad, shift_grad] =
        at::native_layer_norm_backward(grad, x, {x.size(-1)}, means_[run], rstds_[run], Scale(b, g),
                                       Affine(b, g, shift_row_), {true, trains, trains});
    if (trains) {
      Row(modulation_.grads_BGKD, b, g, scale_row_).copy_(scale_grad);
      Row(modulation_.grads_BGKD, b, g, shift_row_).copy_(shift_grad);
    }
    return input_grad;
  }

  at::Tensor x_;
  Modulation modulation_;
  int64_t shift_row_, scale_row_;
  double eps_;
  std::vector<at::Tensor> means_, rstds_;  // one per run
};

class GatedResidualOp final : public GraphOp {
 public:
  GatedResidualOp(at::Tensor branch, Modulation modulation, int64_t gate_row)
      : modulation_(std::move(modulation)), gate_row_(gate_row) {
    // The branch is needed for the gate's gradient only.
    if (modulation_.grads_BGKD.defined()) branch_ = std::move(branch);
  }

  const char* name() const override { return "GatedResidualOp"; }

  at::Tensor Forward(const at::Tensor& x, const at::Tensor& branch) const {
    if (modulation_.groups.size() == 1) return at::addcmul(x, GateOfGroup(0), branch);
    at::Tensor y = at::empty_like(x, at::MemoryFormat::Contiguous);
    ForEachRun(
        x.size(0), modulation_.groups, [&](int64_t b, int64_t g, int64_t first, int64_t count) {
          at::Tensor out = Run(y, b, first, count);
          at::addcmul_out(out, Run(x, b, first, count), Row(modulation_.rows_BGKD, b, g, gate_row_),
                          Run(branch, b, first, count));
        });
    return y;
  }

  std::vector<at::Tensor> Backward(const std::vector<at::Tensor>& output_grads) override {
    const at::Tensor& grad = output_grads[0];
    if (!grad.defined()) return {at::Tensor(), at::Tensor(), at::Tensor()};
    if (branch_.defined()) {
      const at::Tensor product = at::mul(grad, branch_);
      ForEachRun(grad.size(0), modulation_.groups,
                 [&](int64_t b, int64_t g, int64_t first, int64_t count) {
                   Row(modulation_.grads_BGKD, b, g, gate_row_)
                       .copy_(Run(product, b, first, count).sum(0, false, at::kFloat));
                 });
    }
    if (modulation_.groups.size() == 1) return {grad, at::mul(grad, GateOfGroup(0)), at::Tensor()};
    at::Tensor branch_grad = at::empty_like(grad, at::MemoryFormat::Contiguous);
    ForEachRun(
        grad.size(0), modulation_.groups, [&](int64_t b, int64_t g, int64_t first, int64_t count) {
          at::Tensor out = Run(branch_grad, b, first, count);
          at::mul_out(out, Run(grad, b, first, count), Row(modulation_.rows_BGKD, b, g, gate_row_));
        });
    return {grad, branch_grad, at::Tensor()};
  }

  std::vector<at::Tensor> SavedTensors() const override {
    return {branch_, modulation_.rows_BGKD, modulation_.grads_BGKD};
  }

 private:
  // [B, 1, D]: broadcasts over the tokens.
  at::Tensor GateOfGroup(int64_t g) const {
    return modulation_.rows_BGKD.select(1, g).narrow(1, gate_row_, 1);
  }

  at::Tensor branch_;
  Modulation modulation_;
  int64_t gate_row_;
};

}  // namespace

Modulation MakeModulation(const at::Tensor& activated_time_BGD, const LinearRef& linear,
                          int64_t num_rows, TimeGroups groups, at::Tensor* cached,
                          const at::Tensor& input_grad_BGD, const at::Tensor& frozen) {
  const int64_t batch = activated_time_BGD.size(0), num_groups = activated_time_BGD.size(1);
  Modulation modulation;
  modulation.groups = std::move(groups);
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor input = activated_time_BGD.reshape({batch * num_groups, -1});
  at::Tensor low;
  if (cached != nullptr && cached->defined()) {
    modulation.rows_BGKD = cached->alias();
    if (GradientsWanted() && linear.adapter_trains())
      low = at::mm(input, linear.adapter->down.to(input.scalar_type()).t());
  } else {
    modulation.rows_BGKD =
        AllRows(input, linear, frozen, &low).view({batch, num_groups, num_rows, -1});
    if (cached != nullptr) *cached = modulation.rows_BGKD.alias();
  }
  if (GradientsWanted() && linear.trains()) {
    modulation.grads_BGKD =
        at::zeros(modulation.rows_BGKD.sizes(), modulation.rows_BGKD.options().dtype(at::kFloat));
    RecordOp(std::make_unique<ModulationOp>(linear, input, low, modulation.grads_BGKD,
                                            linear.weight_trains() ? input_grad_BGD : at::Tensor()),
             {}, {modulation.rows_BGKD}, /*trains=*/true);
  }
  return modulation;
}

at::Tensor ModulatedNorm(const at::Tensor& x_BLD, const Modulation& modulation, int64_t shift_row,
                         int64_t scale_row, double eps) {
  auto op = std::make_unique<ModulatedNormOp>(x_BLD, modulation, shift_row, scale_row, eps);
  at::Tensor y;
  {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    y = op->Forward();
  }
  RecordOp(std::move(op), {x_BLD, modulation.rows_BGKD}, {y}, /*trains=*/false);
  return y;
}

at::Tensor GatedResidual(const at::Tensor& x_BLD, const at::Tensor& branch_BLD,
                         const Modulation& modulation, int64_t gate_row) {
  auto op = std::make_unique<GatedResidualOp>(branch_BLD, modulation, gate_row);
  at::Tensor y;
  {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    y = op->Forward(x_BLD, branch_BLD);
  }
  RecordOp(std::move(op), {x_BLD, branch_BLD, modulation.rows_BGKD}, {y}, /*trains=*/false);
  return y;
}

}  // namespace blockswap::worker
