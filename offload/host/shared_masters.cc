// SPDX-License-Identifier: Apache-2.0
#include "offload/host/shared_masters.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "offload/base/byte_size.h"
#include "offload/base/checksum.h"
#include "offload/base/master_file.h"
#include "offload/base/status_macros.h"
#include "offload/device/host_memory.h"

namespace blockswap::offload {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr off_t kLayoutLock = 0;  // byte of the control area; block i has byte i + 1
constexpr absl::Duration kPollInterval = absl::Milliseconds(5);

using base::kMasterEmpty;
using base::kMasterReady;
using base::kMasterSpoilt;

std::atomic_ref<uint32_t> State(base::MasterFileBlock& block) {
  return std::atomic_ref<uint32_t>(block.state);
}

absl::Status Errno(const std::string& what) {
  const int error = errno;
  const std::string message = absl::StrCat(what, ": ", std::strerror(error));
  const bool no_room = error == ENOSPC || error == ENOMEM || error == EMFILE || error == ENFILE;
  return no_room ? absl::ResourceExhaustedError(message) : absl::UnavailableError(message);
}

// Open file description locks: they exclude other processes and other views in this one, and end
// with the process.
bool TryLock(int fd, off_t byte) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

void Unlock(int fd, off_t byte) {
  struct flock lock {};
  lock.l_type = F_UNLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  fcntl(fd, F_OFD_SETLK, &lock);
}

bool LockWithin(int fd, off_t byte, absl::Duration patience) {
  const absl::Time deadline = absl::Now() + patience;
  while (!TryLock(fd, byte)) {
    if (absl::Now() >= deadline) return false;
    absl::SleepFor(kPollInterval);
  }
  return true;
}

}  // namespace

SharedMasters::SharedMasters(int fd, std::vector<int64_t> sizes, const Options& options)
    : fd_(fd), sizes_(std::move(sizes)), options_(options) {
  control_bytes_ = PageCeil(static_cast<int64_t>(
      sizeof(base::MasterFileControl) + sizes_.size() * sizeof(base::MasterFileBlock) + 64));
  file_bytes_ = control_bytes_;
  for (const int64_t bytes : sizes_) {
    offsets_.push_back(file_bytes_);
    file_bytes_ += PageCeil(bytes);
  }
}

SharedMasters::~SharedMasters() {
  if (control_ != nullptr) UnmapPages(control_, control_bytes_);
  close(fd_);
}

absl::StatusOr<std::unique_ptr<SharedMasters>> SharedMasters::Open(
    int fd, const std::string& key, const std::vector<int64_t>& sizes, const Options& options) {
  // A description of our own: locks taken through the inherited one would be everybody's.
  const int own = open(absl::StrCat("/proc/self/fd/", fd).c_str(), O_RDWR | O_CLOEXEC);
  if (own < 0) return Errno(absl::StrCat("cannot open the shared masters of descriptor ", fd));
  std::unique_ptr<SharedMasters> masters(new SharedMasters(own, sizes, options));
  BLOCKSWAP_RETURN_IF_ERROR(masters->LayOut(key));
  return masters;
}

absl::Status SharedMasters::LayOut(const std::string& key) {
  if (!LockWithin(fd_, kLayoutLock, options_.patience)) {
    return absl::UnavailableError("another process lays the shared masters out and does not end");
  }
  const absl::Cleanup unlock = [this] { Unlock(fd_, kLayoutLock); };
  return LayOutLocked(key);
}

absl::Status SharedMasters::LayOutLocked(const std::string& key) {
  base::MasterFileControl control;
  const base::MasterFileStart wanted = base::MasterFileStart::For(key);
  if (pread(fd_, &control, sizeof(control), 0) <
          static_cast<ssize_t>(sizeof(base::MasterFileStart)) ||
      control.start.magic != wanted.magic || control.start.version != wanted.version) {
    return absl::DataLossError("the shared masters have no valid start");
  }
  if (control.start.key != wanted.key) {
    return absl::FailedPreconditionError(
        "the shared masters are of other weights or another format");
  }
  const uint64_t layout = base::Checksum(absl::MakeConstSpan(
      reinterpret_cast<const std::byte*>(sizes_.data()), sizes_.size() * sizeof(int64_t)));
  const bool is_new = control.start.num_blocks == 0;
  if (is_new && ftruncate(fd_, file_bytes_) != 0) return Errno("cannot size the shared masters");
  struct stat facts {};
  if (fstat(fd_, &facts) != 0) return Errno("cannot stat the shared masters");
  if (facts.st_size != file_bytes_ ||
      (!is_new && (control.layout != layout || control.start.num_blocks != sizes_.size()))) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the shared masters are laid out differently: ", control.start.num_blocks, " blocks in ",
        facts.st_size, " bytes, needed ", sizes_.size(), " in ", file_bytes_));
  }
  // From here on no process can cut pages off that another one has mapped.
  fcntl(fd_, F_ADD_SEALS, kSeals);
  if ((fcntl(fd_, F_GET_SEALS) & kSeals) != kSeals) return Errno("cannot seal the shared masters");
  BLOCKSWAP_ASSIGN_OR_RETURN(control_, MapSharedPages(fd_, 0, control_bytes_));
  auto* const mapped = reinterpret_cast<base::MasterFileControl*>(control_);
  mapped->layout = layout;
  std::atomic_ref<uint32_t>(mapped->start.num_blocks).store(static_cast<uint32_t>(sizes_.size()));
  return absl::OkStatus();
}

base::MasterFileBlock& SharedMasters::control_of(int block) const {
  static_assert(sizeof(base::MasterFileControl) % alignof(base::MasterFileBlock) == 0);
  return reinterpret_cast<base::MasterFileBlock*>(control_ +
                                                  sizeof(base::MasterFileControl))[block];
}

absl::StatusOr<PinnedArena> SharedMasters::Map(DeviceRuntime* device, int block,
                                               PinnedArena::Lock lock) {
  auto arena = PinnedArena::MapFile(device, fd_, offsets_[block], sizes_[block], lock);
  if (arena.ok()) return arena;
  return absl::Status(arena.status().code(), absl::StrCat("the shared master of block ", block,
                                                          ": ", arena.status().message()));
}

bool SharedMasters::IsReady(int block) const {
  return State(control_of(block)).load(std::memory_order_acquire) == kMasterReady;
}

SharedMasters::Outcome SharedMasters::Unusable(std::string why) {
  notes_.push_back(why);
  return {.usable = false, .was_there = false, .why = std::move(why)};
}

SharedMasters::Outcome SharedMasters::CheckReady(int block, absl::Span<const std::byte> bytes) {
  base::MasterFileBlock& control = control_of(block);
  const uint64_t found = base::ChecksumOfPieces(bytes);
  if (State(control).load(std::memory_order_acquire) == kMasterReady && found == control.checksum) {
    found_bytes_ += sizes_[block];
    return {.usable = true, .was_there = true, .why = ""};
  }
  State(control).store(kMasterSpoilt, std::memory_order_release);
  return Unusable(
      absl::StrCat("the shared master of block ", block, ", filled by process ", control.filler,
                   ", has another checksum than when it was filled; it is read from the "
                   "file into memory of this job's own"));
}

absl::StatusOr<SharedMasters::Outcome> SharedMasters::Fill(int block, absl::Span<std::byte> mapped,
                                                           const BlockReader& read) {
  base::MasterFileBlock& control = control_of(block);
  const off_t byte = kLayoutLock + 1 + block;
  if (State(control).load(std::memory_order_acquire) == kMasterEmpty) {
    if (!LockWithin(fd_, byte, options_.patience)) {
      return Unusable(absl::StrCat("another job has been reading block ", block, " for ",
                                   absl::FormatDuration(options_.patience),
                                   "; it is read into memory of this job's own"));
    }
    const absl::Cleanup unlock = [this, byte] { Unlock(fd_, byte); };
    if (State(control).load(std::memory_order_acquire) == kMasterEmpty) {
      control.filler = static_cast<int32_t>(getpid());
      BLOCKSWAP_RETURN_IF_ERROR(read(block, mapped));
      control.checksum = base::ChecksumOfPieces(mapped);
      State(control).store(kMasterReady, std::memory_order_release);
      filled_bytes_ += sizes_[block];
      return Outcome{.usable = true, .was_there = false, .why = ""};
    }
  }
  return CheckReady(block, mapped);
}

}  // namespace blockswap::offload
