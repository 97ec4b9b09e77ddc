// SPDX-License-Identifier: Apache-2.0
#include "offload/device/host_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "offload/base/byte_size.h"
#include "offload/base/pieces.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // of Linux 5.14, missing in older headers
#endif

namespace blockswap::offload {
namespace {

absl::Status NoPages(int64_t bytes) {
  return absl::ResourceExhaustedError(absl::StrCat("host memory exhausted: no pages for ", bytes,
                                                   " bytes, the system answered '",
                                                   std::strerror(errno), "'"));
}

}  // namespace

int64_t PageSize() {
  static const int64_t size = sysconf(_SC_PAGESIZE);
  return size;
}

int64_t PageCeil(int64_t bytes) { return (bytes + PageSize() - 1) / PageSize() * PageSize(); }

absl::StatusOr<std::byte*> MapPages(int64_t bytes) {
  void* data = mmap(nullptr, static_cast<size_t>(PageCeil(bytes)), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("host memory exhausted: asked ", bytes, " bytes (",
                     base::FormatByteSize(bytes), "), the system answered '", std::strerror(errno),
                     "'; stream fewer blocks or free memory on this host"));
  }
  // No MADV_HUGEPAGE: where the page cache has fragmented memory, each fault then waits for
  // compaction, and filling a gigabyte took four times as long.
  return static_cast<std::byte*>(data);
}

absl::StatusOr<std::byte*> MapSharedPages(int fd, int64_t offset, int64_t bytes) {
  void* data = mmap(nullptr, static_cast<size_t>(PageCeil(bytes)), PROT_READ | PROT_WRITE,
                    MAP_SHARED, fd, offset);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("host memory shared by jobs cannot be mapped: asked ", bytes, " bytes at ",
                     offset, ", the system answered '", std::strerror(errno), "'"));
  }
  return static_cast<std::byte*>(data);
}

absl::Status PopulatePages(std::byte* data, int64_t bytes) {
  return base::ForPieces(PageCeil(bytes), [data](int64_t offset, int64_t size) {
    int failed = 0;
    do {
      failed = madvise(data + offset, static_cast<size_t>(size), MADV_POPULATE_WRITE);
    } while (failed != 0 && (errno == EINTR || errno == EAGAIN));
    if (failed == 0) return absl::OkStatus();
    return errno == EINVAL ? absl::UnimplementedError("pages cannot be populated before Linux 5.14")
                           : NoPages(size);
  });
}

absl::Status AllocateFilePages(int fd, int64_t offset, int64_t bytes) {
  return fallocate(fd, 0, offset, PageCeil(bytes)) == 0 ? absl::OkStatus() : NoPages(bytes);
}

absl::Status MakeReadOnly(std::byte* data, int64_t bytes) {
  if (mprotect(data, static_cast<size_t>(PageCeil(bytes)), PROT_READ) == 0) {
    return absl::OkStatus();
  }
  return absl::InternalError(
      absl::StrCat("host memory cannot be made read-only: ", std::strerror(errno)));
}

void UnmapPages(std::byte* data, int64_t bytes) {
  munmap(data, static_cast<size_t>(PageCeil(bytes)));
}

std::string LockLimitText() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "unknown";
  if (limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  const int64_t bytes = static_cast<int64_t>(limit.rlim_cur);
  return absl::StrCat(bytes, " bytes (", base::FormatByteSize(bytes), ")");
}

absl::Status LockPages(std::byte* data, int64_t bytes) {
  // The system call, since the sanitizers replace mlock() by nothing.
  if (syscall(SYS_mlock, data, static_cast<size_t>(bytes)) == 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("page-locked host memory refused: asked ", bytes, " bytes (",
                   base::FormatByteSize(bytes), "), soft limit RLIMIT_MEMLOCK ", LockLimitText(),
                   ", the system answered '", std::strerror(errno),
                   "'; raise the limit (ulimit -l), lower blocks_to_swap, or set pinned_memory to "
                   "auto or never"));
}

void UnlockPages(std::byte* data, int64_t bytes) {
  syscall(SYS_munlock, data, static_cast<size_t>(bytes));
}

}  // namespace blockswap::offload
