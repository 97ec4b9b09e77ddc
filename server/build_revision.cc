// SPDX-License-Identifier: Apache-2.0
#include "server/build_revision.h"

namespace blockswap::server {

const char* BuildRevision() { return BLOCKSWAP_COMMIT; }
const char* BuildTorch() { return BLOCKSWAP_BUILD_TORCH; }
const char* BuildCuda() { return BLOCKSWAP_BUILD_CUDA; }

}  // namespace blockswap::server
