// SPDX-License-Identifier: Apache-2.0
// Finds the job that a person means by an id, a resource name, or the beginning of an id.
#ifndef BLOCKSWAP_CLIENT_CLI_JOB_LOOKUP_H_
#define BLOCKSWAP_CLIENT_CLI_JOB_LOOKUP_H_

#include <string>

#include "absl/status/statusor.h"
#include "blockswap/v1/training.pb.h"
#include "client/cpp/server_client.h"

namespace blockswap::cli {

// NotFound when no job has the id or begins with it; InvalidArgument with the candidates when
// several do.
absl::StatusOr<v1::Job> FindJob(client::ServerClient& client, const std::string& word);

}  // namespace blockswap::cli

#endif  // BLOCKSWAP_CLIENT_CLI_JOB_LOOKUP_H_
