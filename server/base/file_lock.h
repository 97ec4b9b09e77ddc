// SPDX-License-Identifier: Apache-2.0
// An exclusive lock on a file that lasts as long as the process and names its holder to whoever
// comes second.
#ifndef BLOCKSWAP_SERVER_BASE_FILE_LOCK_H_
#define BLOCKSWAP_SERVER_BASE_FILE_LOCK_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/base/unique_fd.h"

namespace blockswap::server {

// Released by the destructor or by the kernel when the process ends.
class FileLock final {
 public:
  // Makes the file where needed (0600). Aborted: another process holds it; the message has its pid.
  static absl::StatusOr<FileLock> Acquire(const std::string& path);

 private:
  explicit FileLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

// Makes `path` and its parents; the last one with `mode`. FailedPrecondition when something else is
// in the way.
absl::Status MakeDirectory(const std::string& path, unsigned int mode);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_BASE_FILE_LOCK_H_
