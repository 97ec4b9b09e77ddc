// SPDX-License-Identifier: Apache-2.0
// Records to API messages; the only place that knows both.
#ifndef BLOCKSWAP_SERVER_RPC_PROTO_CONVERSION_H_
#define BLOCKSWAP_SERVER_RPC_PROTO_CONVERSION_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "blockswap/v1/admin.pb.h"
#include "blockswap/v1/event.pb.h"
#include "blockswap/v1/training.pb.h"
#include "blockswap/v1/worker.pb.h"
#include "server/device/device_table.h"
#include "server/jobs/job.h"
#include "server/supervisor/worker_update.h"

namespace blockswap::server {

// Text from workers and files may hold anything; a proto3 string may not.
std::string ValidUtf8(const std::string& text);

// Another one for another spec or state; progress does not change it.
std::string EtagOf(const JobRecord& job);
v1::Job ToProto(const JobRecord& job, v1::JobView view, int64_t queue_position);
v1::JobEvent ToProto(const EventRecord& event);
v1::Attempt ToProto(const std::string& job_id, const AttemptRecord& attempt);
v1::Checkpoint ToProto(const std::string& job_id, const CheckpointRecord& checkpoint);
v1::Device ToProto(const DeviceState& device);

// InvalidArgument: a message without a body.
absl::StatusOr<WorkerUpdate> FromProto(const v1::WorkerMessage& message);
v1::ServerMessage ToProto(const WorkerCommand& command);

// The JSON mapping that a worker reads. InvalidArgument: text that is not UTF-8.
absl::StatusOr<std::string> SpecToJson(const v1::JobSpec& spec);

// The part after "jobs/"; a bare id is taken too. InvalidArgument otherwise.
absl::StatusOr<std::string> JobIdOf(const std::string& name);
// Lower-case letters, digits and '-', starting with a letter, at most 63.
bool IsValidJobId(const std::string& id);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_PROTO_CONVERSION_H_
