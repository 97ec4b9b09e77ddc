// SPDX-License-Identifier: Apache-2.0
// A job in memory: its weights where the plan wants them, the adapter, the optimizer, ready to
// step.
#ifndef BLOCKSWAP_WORKER_TRAIN_LOADED_JOB_H_
#define BLOCKSWAP_WORKER_TRAIN_LOADED_JOB_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "offload/plan/swap_plan.h"
#include "offload/swap/block_swapper.h"
#include "worker/adapter/adapter.h"
#include "worker/config/job_inspection.h"
#include "worker/model/model.h"
#include "worker/optimizer/adamw.h"
#include "worker/train/adapter_training.h"
#include "worker/train/base_training.h"
#include "worker/train/block_walk.h"
#include "worker/train/device_session.h"
#include "worker/train/weights_loader.h"

namespace blockswap::worker {

// Owns everything but the device and the inspection, which outlive it. Thread safety: the trainer's
// thread.
class LoadedJob {
 public:
  // Reads each block straight from the file to its final home. The adapter is initialised from the
  // seed, then from network.weights where given. ResourceExhausted carries the way out (device or
  // host memory).
  static absl::StatusOr<std::unique_ptr<LoadedJob>> Load(const JobInspection* job,
                                                         offload::SwapPlan plan,
                                                         DeviceSession* session,
                                                         LoadOptions options = {});

  // What loading has to say, one sentence each, since the last call.
  std::vector<std::string> TakeNotes() { return loader_.TakeNotes(); }
  // Of the masters: in memory that other jobs use too.
  int64_t shared_bytes() const { return loader_.shared_bytes(); }
  offload::BlockSwapper& swapper() { return *swapper_; }
  Adapter& adapter() { return *adapter_; }
  AdamW& optimizer() { return *optimizer_; }
  // The adapter, or the base where it trains itself; then there is no adapter.
  Trainable& trained() { return *trained_; }
  // The packed bytes of a block as the checkpoint has them.
  absl::Status ReadBlock(int block, absl::Span<std::byte> destination) const;
  WalkContext walk_context() const;
  // The same walk with the adapter left out: what the base model says.
  WalkContext base_walk_context() const;

 private:
  LoadedJob(const JobInspection* job, DeviceSession* session, LoadOptions options)
      : job_(job),
        runtime_(session->runtime()),
        device_(session->device()),
        loader_(job, std::move(options)) {}
  absl::Status ReadWeights(offload::SwapPlan plan, DeviceSession* session);
  absl::Status MakeAdapter();
  absl::Status MakeBaseTraining();

  const JobInspection* job_;
  offload::DeviceRuntime* const runtime_;
  const at::Device device_;
  WeightsLoader loader_;  // the swapper reads through it
  std::unique_ptr<offload::BlockSwapper> swapper_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Adapter> adapter_;
  std::unique_ptr<AdamW> optimizer_;
  std::unique_ptr<Trainable> trained_;
  BaseTraining* base_training_ = nullptr;  // trained_, where the base trains
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_LOADED_JOB_H_
