// SPDX-License-Identifier: Apache-2.0
// Compares streamed blocks with copies of their own on the device, on real data, before a job
// trusts them with its training.
#ifndef BLOCKSWAP_WORKER_TRAIN_SELF_TEST_H_
#define BLOCKSWAP_WORKER_TRAIN_SELF_TEST_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "offload/device/device_runtime.h"
#include "offload/plan/block_profile.h"
#include "offload/swap/block_swapper.h"
#include "worker/train/block_walk.h"

namespace blockswap::worker {

// First, middle and last streamed block of each list, ascending: those whose way through host
// memory, link and slots is worth a look.
std::vector<int> BlocksToTest(const offload::SwapPlan& plan,
                              const std::vector<offload::BlockList>& lists);

// What a self-test needs beside the walk. All outlive it.
struct SelfTestSubject {
  offload::DeviceRuntime* runtime = nullptr;
  const std::vector<offload::BlockProfile>* profiles = nullptr;
  offload::BlockReader reader;  // the block's bytes as the checkpoint has them
};

struct SelfTestResult {
  std::vector<int> compared;
  std::vector<int> left_out;  // no room for a second copy
  absl::Duration took;
};

// One forward-only pass with `inputs`. Each block of `blocks` runs forward and backward from its
// slot, then from a copy that was read from the checkpoint straight to the device: outputs, input
// gradients and adapter gradients must have the same bits. DataLoss names the first that has not.
// Adapter gradients are zero afterwards; the swapper's next pass has to begin anew.
absl::StatusOr<SelfTestResult> RunSelfTest(const WalkContext& context,
                                           const SelfTestSubject& subject,
                                           const std::vector<int>& blocks,
                                           const ModelInputs& inputs);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_SELF_TEST_H_
