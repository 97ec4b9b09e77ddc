// SPDX-License-Identifier: Apache-2.0
// What a worker sends, as the server reads it, and a job's specification on the wire.
#include <cstdint>
#include <string>

#include "blockswap/v1/job.pb.h"
#include "blockswap/v1/worker.pb.h"
#include "server/rpc/proto_conversion.h"
#include "server/rpc/service_guard.h"

namespace {

template <typename Message>
bool Parse(const uint8_t* data, size_t size, Message* message) {
  return message->ParseFromArray(data, static_cast<int>(size));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace blockswap;  // NOLINT: a fuzz target of three lines
  v1::WorkerMessage message;
  if (Parse(data, size, &message)) server::FromProto(message).status().IgnoreError();
  v1::JobSpec spec;
  if (Parse(data, size, &spec)) server::SpecToJson(spec).status().IgnoreError();
  v1::UpdateJobRequest update;
  if (Parse(data, size, &update)) server::JobIdsIn(update);
  server::JobIdOf(std::string(reinterpret_cast<const char*>(data), size)).status().IgnoreError();
  return 0;
}
