// SPDX-License-Identifier: Apache-2.0
// Resolves paths that strangers name so that they cannot leave the directory they are meant to stay
// below.
#ifndef BLOCKSWAP_WORKER_IO_ROOTED_PATH_H_
#define BLOCKSWAP_WORKER_IO_ROOTED_PATH_H_

#include <string>

#include "absl/status/statusor.h"

namespace blockswap::worker {

// An absolute path for `path`, which is relative to `root` or absolute below it. The kernel decides
// whether it stays below, following every link on the way. An empty root means: no restriction,
// relative to the current directory. PermissionDenied: leaves the root (the message does not say
// where to). NotFound: nothing is there.
absl::StatusOr<std::string> ResolveBelow(const std::string& root, const std::string& path);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_IO_ROOTED_PATH_H_
