// SPDX-License-Identifier: Apache-2.0
#include "worker/model/graph_op.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <unordered_set>
#include <utility>

namespace blockswap::worker {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

class OpNode final : public Node {
 public:
  explicit OpNode(std::unique_ptr<GraphOp> op) : op_(std::move(op)) {}

  variable_list apply(variable_list&& grads) override {
    TORCH_CHECK(op_ != nullptr, "a block's graph was walked twice");
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return op_->Backward(grads);
  }
  // The engine calls this as soon as the node has run: activations are freed while the walk goes
  // on.
  void release_variables() override { op_.reset(); }
  std::string name() const override { return op_ == nullptr ? "released" : op_->name(); }
  const GraphOp* op() const { return op_.get(); }

 private:
  std::unique_ptr<GraphOp> op_;
};

bool AnyRequiresGrad(at::TensorList tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.requires_grad()) return true;
  }
  return false;
}

}  // namespace

bool GradientsWanted() { return at::GradMode::is_enabled(); }

void RecordOp(std::unique_ptr<GraphOp> op, at::TensorList inputs, at::TensorList outputs,
              bool trains) {
  if (!GradientsWanted() || !(trains || AnyRequiresGrad(inputs))) return;
  std::shared_ptr<OpNode> node(new OpNode(std::move(op)), torch::autograd::deleteNode);
  torch::autograd::edge_list edges;
  edges.reserve(inputs.size());
  for (const at::Tensor& input : inputs) {
    edges.push_back(input.defined() ? torch::autograd::impl::gradient_edge(input)
                                    : torch::autograd::Edge());
  }
  node->set_next_edges(std::move(edges));
  for (const at::Tensor& output : outputs) torch::autograd::set_history(output, node);
}

std::vector<GraphNode> InspectGraph(at::TensorList roots) {
  std::vector<GraphNode> found;
  std::unordered_set<Node*> seen;
  std::vector<Node*> pending;
  for (const at::Tensor& root : roots) {
    if (root.defined() && root.grad_fn() != nullptr) pending.push_back(root.grad_fn().get());
  }
  while (!pending.empty()) {
    Node* node = pending.back();
    pending.pop_back();
    if (!seen.insert(node).second) continue;
    GraphNode entry;
    entry.name = node->name();
    if (const auto* own = dynamic_cast<const OpNode*>(node);
        own != nullptr && own->op() != nullptr) {
      entry.hand_written = true;
      entry.saved = own->op()->SavedTensors();
    }
    found.push_back(std::move(entry));
    for (const torch::autograd::Edge& edge : node->next_edges()) {
      if (edge.function != nullptr) pending.push_back(edge.function.get());
    }
  }
  return found;
}

}  // namespace blockswap::worker
