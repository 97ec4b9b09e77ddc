// SPDX-License-Identifier: Apache-2.0
// absl::Status to what a gRPC call answers, with google.rpc details in the trailer.
#ifndef BLOCKSWAP_SERVER_RPC_STATUS_CONVERSION_H_
#define BLOCKSWAP_SERVER_RPC_STATUS_CONVERSION_H_

#include <grpcpp/support/status.h>

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace blockswap::server {

struct Violation {
  std::string field, description;
};

// INVALID_ARGUMENT SPEC_INVALID with all violations: in the message for people, as BadRequest for
// programs.
absl::Status SpecInvalid(const std::vector<Violation>& violations);
// Those that SpecInvalid or PathNotAllowed put into `status`.
std::vector<Violation> ViolationsOf(const absl::Status& status);
// PERMISSION_DENIED PATH_NOT_ALLOWED; names the fields, never what they resolve to.
absl::Status PathNotAllowed(const std::vector<Violation>& violations);

// Total over all codes.
grpc::StatusCode ToGrpcCode(absl::StatusCode code);
absl::StatusCode FromGrpcCode(grpc::StatusCode code);

// Every error gets an ErrorInfo (domain "blockswap"); one without a reason of its own is named
// after its code. Beside it: ResourceInfo for what is missing or there already, PreconditionFailure,
// QuotaFailure, and RetryInfo where a later try may succeed. Texts are cut so that the trailers stay
// below what clients take.
grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_STATUS_CONVERSION_H_
