// SPDX-License-Identifier: Apache-2.0
// A small random Qwen-Image checkpoint on disk, and everything it takes to walk it on the host
// device.
#ifndef BLOCKSWAP_TESTS_WORKER_MODEL_TINY_MODEL_H_
#define BLOCKSWAP_TESTS_WORKER_MODEL_TINY_MODEL_H_

#include <memory>
#include <string>
#include <vector>

#include "offload/device/host_device.h"
#include "offload/plan/planner.h"
#include "offload/swap/block_swapper.h"
#include "worker/adapter/adapter.h"
#include "worker/family/family.h"
#include "worker/io/checkpoint_source.h"
#include "worker/model/model.h"

namespace blockswap::worker::testing {

inline constexpr int64_t kTestSeed = 20260801;

struct TinyShape {
  int64_t layers = 6, heads = 4, head_dim = 16, text_width = 24, in_channels = 16, out_channels = 4;
  std::vector<int64_t> axes = {4, 6, 6};
  bool zero_cond_t = false;
  bool host_modulation = false;
  Quantization quantization = Quantization::kNone;
};

// Standard normal numbers times `scale`, a function of (kTestSeed, sample).
at::Tensor RandomTensor(std::vector<int64_t> shape, int64_t sample, double scale = 1.0);

// A checkpoint file with random weights, opened and described. Fails the test on any error.
struct TinyCheckpoint {
  std::shared_ptr<CheckpointSource> source;
  ModelDescription model;
  std::vector<offload::BlockProfile> profiles;
};
TinyCheckpoint MakeTinyCheckpoint(const TinyShape& shape, Dtype dtype);

// Adapters on every linear of every block, rank and alpha varying, both factors random.
Adapter MakeRandomAdapter(const ModelDescription& model, bool with_gradients);

ModelInputs MakeInputs(const ModelDescription& model, int64_t batch,
                       std::vector<std::array<int64_t, 3>> images, int64_t text_tokens);

struct Placement {
  int blocks_to_swap = 0;
  int ring_size = 2;
  offload::TransferMode mode = offload::TransferMode::kH2dOnly;
  offload::PinPolicy pin_policy = offload::PinPolicy::kAuto;
  offload::Granularity granularity = offload::Granularity::kBlock;
};

std::unique_ptr<offload::HostDevice> MakeHostDevice(offload::HostDeviceOptions options = {});
std::unique_ptr<offload::BlockSwapper> MakeSwapper(const TinyCheckpoint& checkpoint,
                                                   const Placement& placement,
                                                   offload::DeviceRuntime* device);

}  // namespace blockswap::worker::testing

#endif  // BLOCKSWAP_TESTS_WORKER_MODEL_TINY_MODEL_H_
