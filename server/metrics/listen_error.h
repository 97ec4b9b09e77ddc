// SPDX-License-Identifier: Apache-2.0
// Says why an address cannot be listened on, for a web server that does not.
#ifndef BLOCKSWAP_SERVER_METRICS_LISTEN_ERROR_H_
#define BLOCKSWAP_SERVER_METRICS_LISTEN_ERROR_H_

#include <string>

namespace blockswap::server {

// What the kernel answers to the same request: "Address already in use", "Permission denied". Of an
// address that is none ("127.0.0.1:99999") what is wrong with it.
std::string WhyCannotListen(const std::string& address);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_METRICS_LISTEN_ERROR_H_
