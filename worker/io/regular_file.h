// SPDX-License-Identifier: Apache-2.0
// Opens and reads regular files only: a FIFO, a device or a directory in place of a file is an
// error, never a hang.
#ifndef BLOCKSWAP_WORKER_IO_REGULAR_FILE_H_
#define BLOCKSWAP_WORKER_IO_REGULAR_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace blockswap::worker {

// An open file descriptor, closed at the end.
class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  ~OwnedFd();
  OwnedFd(OwnedFd&& other) noexcept : fd_(other.release()) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept;
  OwnedFd(const OwnedFd&) = delete;
  OwnedFd& operator=(const OwnedFd&) = delete;

  int get() const { return fd_; }
  int release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }

 private:
  int fd_ = -1;
};

struct RegularFile {
  OwnedFd fd;
  int64_t bytes = 0;
};

// NotFound, PermissionDenied, or InvalidArgument for what is no regular file.
absl::StatusOr<RegularFile> OpenRegularFile(const std::string& path);

// The whole text. InvalidArgument when it is longer than `max_bytes`.
absl::StatusOr<std::string> ReadTextFile(const std::string& path, int64_t max_bytes);

// A status for a failed system call, its code chosen by `error_number`: full disks and quotas are
// ResourceExhausted.
absl::Status ErrnoStatus(int error_number, const std::string& what);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_IO_REGULAR_FILE_H_
