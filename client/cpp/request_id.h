// SPDX-License-Identifier: Apache-2.0
// Identifiers that make a repeated request the same request.
#ifndef BLOCKSWAP_CLIENT_CPP_REQUEST_ID_H_
#define BLOCKSWAP_CLIENT_CPP_REQUEST_ID_H_

#include <string>

namespace blockswap::client {

// A random UUID (version 4) from the system's generator.
std::string NewRequestId();

}  // namespace blockswap::client

#endif  // BLOCKSWAP_CLIENT_CPP_REQUEST_ID_H_
