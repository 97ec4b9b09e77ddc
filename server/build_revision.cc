// SPDX-License-Identifier: Apache-2.0
#include "server/build_revision.h"

namespace blockswap::server {

const char* BuildRevision() { return BLOCKSWAP_COMMIT; }

}  // namespace blockswap::server
