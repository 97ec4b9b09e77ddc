// SPDX-License-Identifier: Apache-2.0
// Reads ranges of an open file by system calls: a file that shrinks or fails meanwhile is an error,
// never the end of the process.
#ifndef BLOCKSWAP_WORKER_IO_FILE_READER_H_
#define BLOCKSWAP_WORKER_IO_FILE_READER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "offload/base/mutex.h"
#include "worker/io/regular_file.h"

namespace blockswap::worker {

// kBuffered: through the page cache, which other readers of the file find warm. kDirect: past it
// (O_DIRECT), for files larger than memory.
enum class ReadMode { kBuffered, kDirect };

// What one timed trial of both modes found.
struct ReadTrial {
  double buffered_bytes_per_second = 0;
  double direct_bytes_per_second = 0;  // 0: the file system refuses it
};

// Owns: the descriptors. Thread safety: Read from any thread; the mode is set before.
class FileReader {
 public:
  FileReader(std::string path, RegularFile file);

  // DataLoss, naming the file, when it gives fewer bytes than it had when it was opened or cannot
  // be read any more.
  absl::Status Read(int64_t offset, absl::Span<std::byte> destination) const;
  // Says that these bytes are wanted soon. Nothing to do in direct mode.
  void WillNeed(int64_t offset, int64_t bytes) const;

  // kDirect falls back to kBuffered where the file system refuses it; the answer is what is used.
  ReadMode SetMode(ReadMode mode);
  ReadMode mode() const { return mode_; }
  // Reads two different parts of the file, one in each mode. The mode stays.
  ReadTrial Try(int64_t bytes);

  int fd() const { return file_.fd.get(); }
  int64_t bytes() const { return file_.bytes; }
  const std::string& path() const { return path_; }
  int64_t bytes_read() const { return bytes_read_.load(std::memory_order_relaxed); }

 private:
  absl::Status ReadPiece(int64_t offset, absl::Span<std::byte> destination) const;
  absl::Status ReadBuffered(int64_t offset, absl::Span<std::byte> destination) const;
  absl::Status ReadDirect(int64_t offset, absl::Span<std::byte> destination) const;
  absl::Status Failed(int64_t offset, int64_t wanted, int64_t got, int error_number) const;

  const std::string path_;
  const RegularFile file_;
  OwnedFd direct_;
  ReadMode mode_ = ReadMode::kBuffered;
  mutable std::atomic<int64_t> bytes_read_{0};  // relaxed: a figure for reports
  mutable base::Mutex bounce_mutex_;
  mutable std::vector<std::byte> bounce_ ABSL_GUARDED_BY(bounce_mutex_);  // aligned part of it
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_IO_FILE_READER_H_
