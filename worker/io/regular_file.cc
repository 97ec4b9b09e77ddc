// SPDX-License-Identifier: Apache-2.0
#include "worker/io/regular_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "offload/base/byte_size.h"
#include "offload/base/status_macros.h"
#include "worker/io/rooted_path.h"

namespace blockswap::worker {
namespace {

const char* KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  if (S_ISSOCK(mode)) return "a socket";
  return "something else";
}

absl::StatusOr<OwnedFd> OpenAllowed(const std::string& path, int flags) {
  const std::vector<std::string>* roots = ScopedOpenRoots::current();
  const bool anywhere =
      roots == nullptr || std::find(roots->begin(), roots->end(), "") != roots->end();
  if (anywhere) {
    OwnedFd fd(open(path.c_str(), flags));
    if (fd.get() < 0) return ErrnoStatus(errno, absl::StrCat("cannot open ", path));
    return fd;
  }
  absl::StatusOr<OwnedFd> opened =
      absl::PermissionDeniedError(absl::StrCat("path ", path, " is below no root"));
  for (const std::string& root : *roots) {
    opened = OpenBelow(root, path, flags);
    // By its spelling or by a link it is not in this root; it may be in another.
    if (!absl::IsPermissionDenied(opened.status())) break;
  }
  return opened;
}

}  // namespace

OwnedFd::~OwnedFd() {
  if (fd_ >= 0) close(fd_);
}

OwnedFd& OwnedFd::operator=(OwnedFd&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    fd_ = other.release();
  }
  return *this;
}

absl::Status ErrnoStatus(int error_number, const std::string& what) {
  const std::string message = absl::StrCat(what, ": ", strerror(error_number));
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return absl::ResourceExhaustedError(message);
    case ELOOP:
    case ENAMETOOLONG:
    case EISDIR:
    case ENXIO:  // a socket or a device without a driver was opened
      return absl::InvalidArgumentError(message);
    default:
      return absl::UnavailableError(message);
  }
}

absl::StatusOr<RegularFile> OpenRegularFile(const std::string& path) {
  if (path.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError("path has a NUL byte in it");
  }
  RegularFile file;
  // O_NONBLOCK: opening a FIFO without a writer would otherwise wait for ever.
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  BLOCKSWAP_ASSIGN_OR_RETURN(file.fd, OpenAllowed(path, kFlags));
  struct stat info;
  if (fstat(file.fd.get(), &info) != 0)
    return ErrnoStatus(errno, absl::StrCat("cannot stat ", path));
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not a regular file but ", KindOf(info.st_mode)));
  }
  file.bytes = info.st_size;
  return file;
}

absl::StatusOr<std::string> ReadTextFile(const std::string& path, int64_t max_bytes) {
  BLOCKSWAP_ASSIGN_OR_RETURN(RegularFile file, OpenRegularFile(path));
  if (file.bytes > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is too long: ", base::FormatByteSize(file.bytes), ", at most ",
                     base::FormatByteSize(max_bytes), " are read"));
  }
  std::string text(static_cast<size_t>(file.bytes), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = read(file.fd.get(), text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoStatus(errno, absl::StrCat("cannot read ", path));
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  text.resize(done);
  return text;
}

}  // namespace blockswap::worker
