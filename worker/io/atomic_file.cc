// SPDX-License-Identifier: Apache-2.0
#include "worker/io/atomic_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <filesystem>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "offload/base/status_macros.h"

namespace blockswap::worker {
namespace {

constexpr char kTemporaryMark[] = ".tmp-";
constexpr size_t kSuffixDigits = 16;

bool IsOutOfSpace(int error_number) {
  // EFBIG is a process's file-size limit: to the caller it is a full disk all the same.
  return error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG;
}

std::string NameOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

// ".NAME.tmp-" and sixteen hexadecimal digits.
bool IsTemporaryName(const std::string& name) {
  const size_t mark = name.rfind(kTemporaryMark);
  return name[0] == '.' && mark != std::string::npos && mark > 1 &&
         name.size() == mark + sizeof(kTemporaryMark) - 1 + kSuffixDigits &&
         name.find_first_not_of("0123456789abcdef", mark + sizeof(kTemporaryMark) - 1) ==
             std::string::npos;
}

}  // namespace

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string RandomSuffix() {
  uint64_t bits = 0;
  if (getrandom(&bits, sizeof(bits), 0) != static_cast<ssize_t>(sizeof(bits))) {
    bits = static_cast<uint64_t>(getpid());  // O_EXCL still keeps two writers apart
  }
  return absl::StrFormat("%016x", bits);
}

absl::StatusOr<int64_t> FreeDiskBytes(const std::string& path) {
  struct statvfs info;
  if (statvfs(path.c_str(), &info) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot ask for the free space of ", path));
  }
  const uint64_t free = static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
  const auto most = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  return static_cast<int64_t>(free < most ? free : most);
}

absl::Status SyncDirectory(const std::string& directory) {
  const OwnedFd fd(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0) return ErrnoStatus(errno, absl::StrCat("cannot open ", directory));
  if (fsync(fd.get()) != 0) return ErrnoStatus(errno, absl::StrCat("cannot fsync ", directory));
  return absl::OkStatus();
}

absl::Status SyncFile(const std::string& path) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const RegularFile file, OpenRegularFile(path));
  if (fsync(file.fd.get()) != 0) return ErrnoStatus(errno, absl::StrCat("cannot fsync ", path));
  return absl::OkStatus();
}

AtomicFile::AtomicFile(std::string path, std::string temporary_path, OwnedFd fd,
                       int64_t expected_bytes)
    : path_(std::move(path)),
      temporary_path_(std::move(temporary_path)),
      fd_(std::move(fd)),
      expected_bytes_(expected_bytes) {}

AtomicFile::~AtomicFile() {
  if (!committed_) unlink(temporary_path_.c_str());
}

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(const std::string& path,
                                                               int64_t expected_bytes) {
  const std::string temporary =
      absl::StrCat(DirectoryOf(path), "/.", NameOf(path), kTemporaryMark, RandomSuffix());
  OwnedFd fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (fd.get() < 0) return ErrnoStatus(errno, absl::StrCat("cannot create a file for ", path));
  return std::unique_ptr<AtomicFile>(
      new AtomicFile(path, temporary, std::move(fd), expected_bytes));
}

absl::Status AtomicFile::WriteError(int error_number) const {
  if (!IsOutOfSpace(error_number)) {
    return ErrnoStatus(error_number, absl::StrCat("cannot write ", path_));
  }
  const auto free = FreeDiskBytes(DirectoryOf(path_));
  return absl::ResourceExhaustedError(
      absl::StrCat("out of space while writing ", path_, ": ", expected_bytes_, " bytes needed, ",
                   written_bytes_, " written, ", free.ok() ? *free : 0, " free on its file system",
                   error_number == EFBIG ? " (the process's file-size limit was reached)" : "",
                   error_number == EDQUOT ? " (the quota was reached)" : "",
                   "; free some space and save again"));
}

absl::Status AtomicFile::Append(const void* bytes, size_t size) {
  const char* next = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t count = write(fd_.get(), next, size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return WriteError(errno);
    next += count;
    size -= static_cast<size_t>(count);
    written_bytes_ += count;
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::Sync() {
  // Delayed allocation reports a full disk here and not at write().
  if (fsync(fd_.get()) != 0) return WriteError(errno);
  return absl::OkStatus();
}

absl::Status AtomicFile::Commit() {
  if (rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    return IsOutOfSpace(errno) ? WriteError(errno)
                               : ErrnoStatus(errno, absl::StrCat("cannot rename to ", path_));
  }
  committed_ = true;
  return SyncDirectory(DirectoryOf(path_));
}

void RemoveStaleTemporaries(const std::string& directory) {
  std::vector<std::filesystem::path> stale;
  std::error_code error;
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    if (IsTemporaryName(it->path().filename().string())) stale.push_back(it->path());
  }
  for (const std::filesystem::path& path : stale) unlink(path.c_str());
}

absl::Status WriteFileAtomically(const std::string& path, absl::string_view content) {
  BLOCKSWAP_ASSIGN_OR_RETURN(std::unique_ptr<AtomicFile> file,
                             AtomicFile::Create(path, static_cast<int64_t>(content.size())));
  BLOCKSWAP_RETURN_IF_ERROR(file->Append(content.data(), content.size()));
  BLOCKSWAP_RETURN_IF_ERROR(file->Sync());
  return file->Commit();
}

}  // namespace blockswap::worker
