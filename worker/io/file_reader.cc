// SPDX-License-Identifier: Apache-2.0
#include "worker/io/file_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "offload/base/byte_size.h"
#include "offload/base/pieces.h"
#include "offload/base/status_macros.h"

namespace blockswap::worker {
namespace {

constexpr int64_t kDirectAlignment = 4096;        // covers every block device's logical sector
constexpr int64_t kBounceBytes = 4 * base::kMiB;  // large enough for the full rate of an NVMe drive
// The kernel cuts a wish for more to the largest request of the device, 1.25 MiB for most.
constexpr int64_t kWishBytes = base::kMiB;

// As many bytes as the file gives; -1 and errno on failure.
int64_t ReadAt(int fd, int64_t offset, std::byte* destination, int64_t bytes) {
  int64_t done = 0;
  while (done < bytes) {
    const ssize_t count = pread(fd, destination + done, static_cast<size_t>(bytes - done),
                                static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return -1;
    if (count == 0) break;
    done += count;
  }
  return done;
}

double BytesPerSecond(int64_t bytes, absl::Duration duration) {
  return static_cast<double>(bytes) / std::max(absl::ToDoubleSeconds(duration), 1e-9);
}

}  // namespace

FileReader::FileReader(std::string path, RegularFile file)
    : path_(std::move(path)), file_(std::move(file)) {}

absl::Status FileReader::Failed(int64_t offset, int64_t wanted, int64_t got,
                                int error_number) const {
  const std::string where = absl::StrCat(path_, ": asked ", wanted, " bytes at ", offset);
  if (got < 0) {
    return absl::DataLossError(absl::StrCat(where, ", the system answered '",
                                            strerror(error_number),
                                            "'; the file or its disk has gone while in use"));
  }
  return absl::DataLossError(absl::StrCat(where, ", only ", got,
                                          " are there: the file is cut short, it had ", file_.bytes,
                                          " bytes when it was opened"));
}

absl::Status FileReader::ReadPiece(int64_t offset, absl::Span<std::byte> destination) const {
  const auto wanted = static_cast<int64_t>(destination.size());
  const int64_t got = ReadAt(file_.fd.get(), offset, destination.data(), wanted);
  return got == wanted ? absl::OkStatus() : Failed(offset, wanted, got, errno);
}

absl::Status FileReader::ReadBuffered(int64_t offset, absl::Span<std::byte> destination) const {
  // One thread copies out of the page cache, into memory that gets its pages meanwhile, slower than
  // a drive reads.
  return base::ForPieces(static_cast<int64_t>(destination.size()),
                         [this, offset, destination](int64_t first, int64_t size) {
                           return ReadPiece(offset + first,
                                            destination.subspan(static_cast<size_t>(first),
                                                                static_cast<size_t>(size)));
                         });
}

absl::Status FileReader::ReadDirect(int64_t offset, absl::Span<std::byte> destination) const {
  base::MutexLock lock(bounce_mutex_);
  bounce_.resize(static_cast<size_t>(kBounceBytes + kDirectAlignment));
  const auto address = reinterpret_cast<uintptr_t>(bounce_.data());
  std::byte* const aligned = bounce_.data() + (kDirectAlignment - address % kDirectAlignment);
  const auto wanted = static_cast<int64_t>(destination.size());
  for (int64_t done = 0; done < wanted;) {
    const int64_t at = offset + done;
    const int64_t lead = at % kDirectAlignment;
    const int64_t piece = std::min(wanted - done, kBounceBytes - kDirectAlignment - lead);
    const int64_t span =
        (lead + piece + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
    const int64_t got = ReadAt(direct_.get(), at - lead, aligned, span);
    if (got < lead + piece) {
      return Failed(at, piece, got < 0 ? got : std::max<int64_t>(0, got - lead), errno);
    }
    memcpy(destination.data() + done, aligned + lead, static_cast<size_t>(piece));
    done += piece;
  }
  return absl::OkStatus();
}

absl::Status FileReader::Read(int64_t offset, absl::Span<std::byte> destination) const {
  bytes_read_.fetch_add(static_cast<int64_t>(destination.size()), std::memory_order_relaxed);
  return mode_ == ReadMode::kDirect ? ReadDirect(offset, destination)
                                    : ReadBuffered(offset, destination);
}

void FileReader::WillNeed(int64_t offset, int64_t bytes) const {
  if (mode_ == ReadMode::kDirect) return;
  for (int64_t done = 0; done < bytes; done += kWishBytes) {
    posix_fadvise(file_.fd.get(), static_cast<off_t>(offset + done),
                  static_cast<off_t>(std::min(kWishBytes, bytes - done)), POSIX_FADV_WILLNEED);
  }
}

ReadMode FileReader::SetMode(ReadMode mode) {
  if (mode == ReadMode::kDirect && direct_.get() < 0) {
    // The same file whatever the name leads to by now.
    const std::string self = absl::StrCat("/proc/self/fd/", file_.fd.get());
    direct_ = OwnedFd(open(self.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT));
    if (direct_.get() < 0) mode = ReadMode::kBuffered;
  }
  mode_ = mode;
  return mode_;
}

ReadTrial FileReader::Try(int64_t bytes) {
  const ReadMode before = mode_;
  ReadTrial trial;
  bytes = std::min(bytes, file_.bytes / 2);
  if (bytes <= 0) return trial;
  std::vector<std::byte> scratch(static_cast<size_t>(bytes));
  const auto time = [&](ReadMode mode, int64_t offset) {
    if (SetMode(mode) != mode) return 0.0;
    const absl::Time begin = absl::Now();
    if (!Read(offset, absl::MakeSpan(scratch)).ok()) return 0.0;
    return BytesPerSecond(bytes, absl::Now() - begin);
  };
  // Different halves, so that neither finds what the other brought in. The tail is the part that
  // loading reads last and a cache keeps longest.
  trial.direct_bytes_per_second = time(ReadMode::kDirect, 0);
  trial.buffered_bytes_per_second = time(ReadMode::kBuffered, file_.bytes - bytes);
  SetMode(before);
  return trial;
}

}  // namespace blockswap::worker
