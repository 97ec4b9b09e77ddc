// SPDX-License-Identifier: Apache-2.0
// Files that appear under their name complete or not at all: written aside, fsynced, renamed, the
// directory fsynced.
#ifndef BLOCKSWAP_WORKER_IO_ATOMIC_FILE_H_
#define BLOCKSWAP_WORKER_IO_ATOMIC_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/io/regular_file.h"

namespace blockswap::worker {

// Owns: the temporary file, until Commit has renamed it; a destroyed writer leaves nothing behind.
// Thread safety: one thread.
// Errors: ResourceExhausted for a full disk or quota, with the bytes needed and free.
class AtomicFile {
 public:
  // The temporary lies beside `path`: a rename must not cross file systems. `expected_bytes` is
  // only used in messages.
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(const std::string& path,
                                                            int64_t expected_bytes);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  absl::Status Append(const void* bytes, size_t size);
  // fsync, so that the content is on the disk before the name is; the caller may read it back under
  // temporary_path().
  absl::Status Sync();
  // REQUIRES: Sync() was successful after the last Append.
  absl::Status Commit();
  const std::string& temporary_path() const { return temporary_path_; }

 private:
  AtomicFile(std::string path, std::string temporary_path, OwnedFd fd, int64_t expected_bytes);
  absl::Status WriteError(int error_number) const;

  const std::string path_;
  const std::string temporary_path_;
  OwnedFd fd_;
  const int64_t expected_bytes_;
  int64_t written_bytes_ = 0;
  bool committed_ = false;
};

absl::Status WriteFileAtomically(const std::string& path, absl::string_view content);

// Removes what writers that were killed left in `directory`. REQUIRES: nobody is writing there now.
void RemoveStaleTemporaries(const std::string& directory);

absl::Status SyncDirectory(const std::string& directory);
absl::Status SyncFile(const std::string& path);
// Free bytes for this process on the file system of `path`.
absl::StatusOr<int64_t> FreeDiskBytes(const std::string& path);
// Sixteen hexadecimal digits from the system's random source, for temporary names.
std::string RandomSuffix();
// "." for a plain name.
std::string DirectoryOf(const std::string& path);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_IO_ATOMIC_FILE_H_
