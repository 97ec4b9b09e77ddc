// SPDX-License-Identifier: Apache-2.0
// Reads what a client shows and trusts from files: no secret is ever on a command line.
#ifndef BLOCKSWAP_CLIENT_CPP_ENDPOINT_FILES_H_
#define BLOCKSWAP_CLIENT_CPP_ENDPOINT_FILES_H_

#include <string>

#include "absl/status/statusor.h"

namespace blockswap::client {

// The token in `path`, or on standard input for "-". NotFound, or InvalidArgument where the file
// has no token of one line, or everybody may read it.
absl::StatusOr<std::string> ReadTokenFile(const std::string& path);

// PEM text, at most 1 MiB.
absl::StatusOr<std::string> ReadPemFile(const std::string& path);

}  // namespace blockswap::client

#endif  // BLOCKSWAP_CLIENT_CPP_ENDPOINT_FILES_H_
