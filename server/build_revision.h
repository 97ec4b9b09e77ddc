// SPDX-License-Identifier: Apache-2.0
// Which commit the server was built from, and the libraries of the worker of that build.
#ifndef BLOCKSWAP_SERVER_BUILD_REVISION_H_
#define BLOCKSWAP_SERVER_BUILD_REVISION_H_

namespace blockswap::server {

// Abbreviated hash of the checkout when the build was configured; "unknown" outside a checkout.
const char* BuildRevision();
// "2.11.0", "13.0"; "none" where the build leaves LibTorch or the CUDA device out.
const char* BuildTorch();
const char* BuildCuda();

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_BUILD_REVISION_H_
