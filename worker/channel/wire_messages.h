// SPDX-License-Identifier: Apache-2.0
// The reports of training as messages of worker.proto.
#ifndef BLOCKSWAP_WORKER_CHANNEL_WIRE_MESSAGES_H_
#define BLOCKSWAP_WORKER_CHANNEL_WIRE_MESSAGES_H_

#include <string>

#include "absl/strings/string_view.h"
#include "blockswap/v1/worker.pb.h"
#include "worker/channel/reporter.h"

namespace blockswap::worker {

// Text is made valid UTF-8 and cut to what the protocol's 1 MiB allows.
v1::WorkerMessage ToMessage(const ReadyReport& ready);
v1::WorkerMessage ToMessage(const StepReport& step);
v1::WorkerMessage ToMessage(const MemoryReport& memory);
v1::WorkerMessage ToMessage(const PlanReport& plan);
v1::WorkerMessage ToMessage(const ExitReport& report);
v1::WorkerMessage PhaseMessage(absl::string_view phase);
v1::WorkerMessage LoadMessage(int64_t bytes_done, int64_t bytes_total);
v1::WorkerMessage WarningMessage(absl::string_view reason, const std::string& text);

// "NUMERICS" and "FAILURE_CATEGORY_NUMERICS"; SERVER_INTERNAL for a word that is no category.
v1::FailureCategory ToFailureCategory(const std::string& category);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_CHANNEL_WIRE_MESSAGES_H_
