// SPDX-License-Identifier: Apache-2.0
// Exact host memory from the kernel: whole pages by mmap, never a rounding allocator, and page
// locks with readable errors.
#ifndef BLOCKSWAP_OFFLOAD_DEVICE_HOST_MEMORY_H_
#define BLOCKSWAP_OFFLOAD_DEVICE_HOST_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace blockswap::offload {

int64_t PageSize();
// Rounds up to whole pages.
int64_t PageCeil(int64_t bytes);

// Maps `bytes` (rounded up to pages), zeroed. ResourceExhausted when the system has no more.
absl::StatusOr<std::byte*> MapPages(int64_t bytes);
void UnmapPages(std::byte* data, int64_t bytes);

// Maps pages of a file that other processes map too, writable. `offset` is page aligned.
absl::StatusOr<std::byte*> MapSharedPages(int fd, int64_t offset, int64_t bytes);
// Gives all pages of a writable mapping their memory, by several threads. ResourceExhausted when
// there is not enough, where a first touch would end the process; Unimplemented before Linux 5.14.
absl::Status PopulatePages(std::byte* data, int64_t bytes);
// The same for pages of a file, unmapped or not, on whichever node this thread runs.
absl::Status AllocateFilePages(int fd, int64_t offset, int64_t bytes);
// No write through this mapping from now on.
absl::Status MakeReadOnly(std::byte* data, int64_t bytes);

// mlock. ResourceExhausted naming page-locked host memory, what was asked, the limit and what to
// lower.
absl::Status LockPages(std::byte* data, int64_t bytes);
void UnlockPages(std::byte* data, int64_t bytes);

// "unlimited" or the RLIMIT_MEMLOCK soft limit in readable bytes.
std::string LockLimitText();

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_DEVICE_HOST_MEMORY_H_
