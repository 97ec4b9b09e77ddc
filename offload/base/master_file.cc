// SPDX-License-Identifier: Apache-2.0
#include "offload/base/master_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"

namespace blockswap::base {
namespace {

absl::Status Refused(int error) {
  const std::string message =
      absl::StrCat("cannot make memory to share between jobs: ", std::strerror(error));
  const bool no_room = error == ENOSPC || error == ENOMEM || error == EMFILE || error == ENFILE;
  return no_room ? absl::ResourceExhaustedError(message) : absl::UnavailableError(message);
}

}  // namespace

MasterFileStart MasterFileStart::For(const std::string& key) {
  MasterFileStart start;
  start.magic = {'b', 's', 'm', 'a', 's', 't', 'e', 'r'};
  start.version = kMasterFileVersion;
  std::copy_n(key.data(), std::min(key.size(), start.key.size()), start.key.data());
  return start;
}

absl::StatusOr<int> CreateMasterFile(const std::string& key) {
  static_assert(std::is_trivially_copyable_v<MasterFileStart>);
  const int fd = memfd_create("blockswap-masters", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return Refused(errno);
  const MasterFileStart start = MasterFileStart::For(key);
  if (pwrite(fd, &start, sizeof(start), 0) != static_cast<ssize_t>(sizeof(start))) {
    const absl::Status refused = Refused(errno);
    close(fd);
    return refused;
  }
  return fd;
}

int64_t MasterFileBytes(int fd) {
  struct stat facts {};
  constexpr int64_t kStatUnit = 512;
  return fstat(fd, &facts) == 0 ? static_cast<int64_t>(facts.st_blocks) * kStatUnit : 0;
}

std::vector<bool> ReadyMasterBlocks(int fd) {
  MasterFileControl control;
  if (pread(fd, &control, sizeof(control), 0) != static_cast<ssize_t>(sizeof(control))) return {};
  // The size is what the file has room for, whatever its start says.
  struct stat facts {};
  if (fstat(fd, &facts) != 0) return {};
  const int64_t room =
      (static_cast<int64_t>(facts.st_size) - static_cast<int64_t>(sizeof(control))) /
      static_cast<int64_t>(sizeof(MasterFileBlock));
  if (control.start.num_blocks > room) return {};
  std::vector<MasterFileBlock> blocks(control.start.num_blocks);
  const size_t bytes = blocks.size() * sizeof(MasterFileBlock);
  if (pread(fd, blocks.data(), bytes, sizeof(control)) != static_cast<ssize_t>(bytes)) return {};
  std::vector<bool> ready;
  for (const MasterFileBlock& block : blocks) ready.push_back(block.state == kMasterReady);
  return ready;
}

}  // namespace blockswap::base
