// SPDX-License-Identifier: Apache-2.0
#include "server/base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace blockswap::server {

absl::StatusOr<FileLock> FileLock::Acquire(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot open lock file ", path, ": ", std::strerror(errno)));
  }
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    std::array<char, 32> text{};
    const ssize_t length = ::pread(fd.get(), text.data(), text.size() - 1, 0);
    const std::string holder(text.data(), length > 0 ? static_cast<size_t>(length) : 0);
    return absl::AbortedError(
        absl::StrCat("another blockswapd holds ", path, " (pid ",
                     holder.empty() ? "unknown" : std::string(absl::StripSuffix(holder, "\n")),
                     "); stop it or choose another --state-dir and --socket"));
  }
  const std::string pid = absl::StrCat(::getpid(), "\n");
  if (::ftruncate(fd.get(), 0) != 0 ||
      ::pwrite(fd.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    // The lock itself holds; a full disk only costs the second server the name of the first.
  }
  return FileLock(std::move(fd));
}

absl::Status MakeDirectory(const std::string& path, unsigned int mode) {
  std::error_code error;
  const std::filesystem::path directory(path);
  if (directory.has_parent_path())
    std::filesystem::create_directories(directory.parent_path(), error);
  if (::mkdir(path.c_str(), mode) == 0) return absl::OkStatus();
  if (errno == EEXIST && std::filesystem::is_directory(directory, error)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("cannot make directory ", path, ": ", std::strerror(errno)));
}

}  // namespace blockswap::server
