// SPDX-License-Identifier: Apache-2.0
// Which commit the server was built from.
#ifndef BLOCKSWAP_SERVER_BUILD_REVISION_H_
#define BLOCKSWAP_SERVER_BUILD_REVISION_H_

namespace blockswap::server {

// Abbreviated hash of the checkout when the build was configured; "unknown" outside a checkout.
const char* BuildRevision();

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_BUILD_REVISION_H_
