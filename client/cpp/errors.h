// SPDX-License-Identifier: Apache-2.0
// Errors of the server with everything they carry: code, reason, and the fields at fault.
#ifndef BLOCKSWAP_CLIENT_CPP_ERRORS_H_
#define BLOCKSWAP_CLIENT_CPP_ERRORS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "grpcpp/grpcpp.h"

namespace blockswap::client {

struct FieldViolation {
  std::string field;
  std::string description;
};

struct ErrorDetails {
  std::string reason;  // UPPER_SNAKE, "SPEC_INVALID"; empty when the error is not the server's own
  std::map<std::string, std::string> metadata;
  std::vector<FieldViolation> violations;  // of BadRequest and PreconditionFailure
};

// Keeps the details of the trailer as the status's payload.
absl::Status ToAbslStatus(const grpc::Status& status);

// Empty details for a status that carries none, or carries what cannot be read.
ErrorDetails DetailsOf(const absl::Status& status);

}  // namespace blockswap::client

#endif  // BLOCKSWAP_CLIENT_CPP_ERRORS_H_
