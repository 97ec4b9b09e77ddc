// SPDX-License-Identifier: Apache-2.0
// Where the daemon listens and clients look when nobody said otherwise: one rule for both.
#ifndef BLOCKSWAP_PROTO_ENDPOINT_DEFAULT_ENDPOINT_H_
#define BLOCKSWAP_PROTO_ENDPOINT_DEFAULT_ENDPOINT_H_

#include <string>

namespace blockswap::proto {

// $XDG_STATE_HOME/blockswap, else $HOME/.local/state/blockswap, else /var/lib/blockswap. Variables
// that are not absolute paths count as absent, as the XDG rules say.
std::string DefaultStateDirectory();

// $XDG_RUNTIME_DIR/blockswap/blockswapd.sock, else <state_directory>/blockswapd.sock.
std::string DefaultSocketPath(const std::string& state_directory);

// The gRPC target of the default socket: "unix:/run/user/1000/blockswap/blockswapd.sock".
std::string DefaultServerTarget();

}  // namespace blockswap::proto

#endif  // BLOCKSWAP_PROTO_ENDPOINT_DEFAULT_ENDPOINT_H_
