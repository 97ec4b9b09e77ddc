// SPDX-License-Identifier: Apache-2.0
// Resolves paths that strangers name so that they cannot leave the directory they are meant to stay
// below.
#ifndef BLOCKSWAP_WORKER_IO_ROOTED_PATH_H_
#define BLOCKSWAP_WORKER_IO_ROOTED_PATH_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/io/regular_file.h"

namespace blockswap::worker {

// An absolute path for `path`, which is relative to `root` or absolute below it. The kernel decides
// whether it stays below, following every link on the way. An empty root means: no restriction,
// relative to the current directory. PermissionDenied: leaves the root (the message does not say
// where to). NotFound: nothing is there.
absl::StatusOr<std::string> ResolveBelow(const std::string& root, const std::string& path);

// Opens `path` as ResolveBelow understands it, with open's `flags`. The kernel judges the very path
// that it opens: a link that is exchanged after a check changes nothing. Errors as ResolveBelow.
absl::StatusOr<OwnedFd> OpenBelow(const std::string& root, const std::string& path, int flags);

// While it lives, OpenRegularFile on this thread opens files below these roots only. Between the
// look at a path that strangers may write to and its opening, a link can be put there. An empty
// root allows everything.
class ScopedOpenRoots final {
 public:
  explicit ScopedOpenRoots(std::vector<std::string> roots);
  ~ScopedOpenRoots();
  ScopedOpenRoots(const ScopedOpenRoots&) = delete;
  ScopedOpenRoots& operator=(const ScopedOpenRoots&) = delete;

  // Those of this thread; null: no restriction.
  static const std::vector<std::string>* current();

 private:
  const std::vector<std::string> roots_;
  const std::vector<std::string>* const before_;
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_IO_ROOTED_PATH_H_
