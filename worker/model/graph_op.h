// SPDX-License-Identifier: Apache-2.0
// Hand-written autograd nodes that say what they keep, so that no frozen weight hides in a graph.
#ifndef BLOCKSWAP_WORKER_MODEL_GRAPH_OP_H_
#define BLOCKSWAP_WORKER_MODEL_GRAPH_OP_H_

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace blockswap::worker {

// The backward half of an operation. What it needs later it keeps as members: activations as
// tensors, weights as WeightRefs.
class GraphOp {
 public:
  virtual ~GraphOp() = default;
  virtual const char* name() const = 0;
  // One gradient per recorded input, undefined where there is none. `output_grads` has one entry
  // per recorded output, undefined where nothing depends on it. Runs without gradient mode, once.
  virtual std::vector<at::Tensor> Backward(const std::vector<at::Tensor>& output_grads) = 0;
  virtual std::vector<at::Tensor> SavedTensors() const = 0;
};

// True when something recorded now would ever be asked for a gradient.
bool GradientsWanted();

// Puts `op` into the graph between `inputs` and `outputs` when gradients are wanted and either an
// input requires them or `trains` is set (the op adds to adapter gradients as a side effect).
// REQUIRES: `outputs` were made below autograd and are no views.
void RecordOp(std::unique_ptr<GraphOp> op, at::TensorList inputs, at::TensorList outputs,
              bool trains);

// What a node of a graph keeps alive. `hand_written` nodes list it completely.
struct GraphNode {
  std::string name;
  bool hand_written = false;
  std::vector<at::Tensor> saved;
};
// All nodes reachable from `roots`, each once.
std::vector<GraphNode> InspectGraph(at::TensorList roots);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_MODEL_GRAPH_OP_H_
