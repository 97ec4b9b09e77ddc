// SPDX-License-Identifier: Apache-2.0
#include "worker/io/rooted_path.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "worker/io/json_text.h"
#include "worker/io/regular_file.h"

namespace blockswap::worker {
namespace {

namespace fs = std::filesystem;

absl::Status Outside(const std::string& path) {
  return absl::PermissionDeniedError(
      absl::StrCat("path ", Quoted(path), " leads outside its root"));
}

std::string WithoutTrailingSlash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// `path` relative to `root` by spelling alone; the kernel judges what it really leads to.
absl::StatusOr<std::string> SpelledBelow(const std::string& root, const std::string& path) {
  if (path.empty() || path[0] != '/') return path;
  std::error_code ignored;
  const fs::path canonical = fs::canonical(root, ignored);
  for (const std::string& base : {WithoutTrailingSlash(root), canonical.string()}) {
    if (base.empty()) continue;
    if (path == base) return std::string(".");
    const std::string prefix = base == "/" ? base : absl::StrCat(base, "/");
    if (absl::StartsWith(path, prefix)) {
      std::string rest = path.substr(prefix.size());
      rest.erase(0, rest.find_first_not_of('/'));
      return rest.empty() ? std::string(".") : rest;
    }
  }
  return Outside(path);
}

// Kernels before 5.6 and some sandboxes have no openat2: there the canonical path is compared,
// which a link that changes in between could deceive.
absl::Status CheckByCanonicalPath(const std::string& root, const std::string& relative,
                                  const std::string& path) {
  std::error_code error;
  const fs::path base = fs::canonical(root, error);
  const fs::path target = fs::canonical(base / relative, error);
  if (error) return ErrnoStatus(error.value(), absl::StrCat("cannot open ", Quoted(path)));
  const fs::path inside = target.lexically_relative(base);
  if (inside.empty() || *inside.begin() == "..") return Outside(path);
  return absl::OkStatus();
}

absl::StatusOr<OwnedFd> OpenByKernel(const std::string& root, const std::string& relative,
                                     const std::string& path, int flags) {
  const OwnedFd base(open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (base.get() < 0) return ErrnoStatus(errno, "cannot open the root of this kind of path");
  struct open_how how = {};
  how.flags = static_cast<uint64_t>(flags) | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  OwnedFd target(
      static_cast<int>(syscall(SYS_openat2, base.get(), relative.c_str(), &how, sizeof(how))));
  if (target.get() >= 0) return target;
  switch (errno) {
    case EXDEV:
    case ELOOP:
      return Outside(path);
    case ENOSYS: {
      BLOCKSWAP_RETURN_IF_ERROR(CheckByCanonicalPath(root, relative, path));
      OwnedFd opened(openat(base.get(), relative.c_str(), flags | O_CLOEXEC));
      if (opened.get() >= 0) return opened;
      break;
    }
    default:
      break;
  }
  return ErrnoStatus(errno, absl::StrCat("cannot open ", Quoted(path)));
}

thread_local const std::vector<std::string>* open_roots = nullptr;

}  // namespace

absl::StatusOr<std::string> ResolveBelow(const std::string& root, const std::string& path) {
  if (path.find('\0') != std::string::npos) return Outside(path);
  if (root.empty()) {
    std::error_code error;
    const fs::path absolute = fs::absolute(path, error);
    if (error) return ErrnoStatus(error.value(), absl::StrCat("cannot resolve ", Quoted(path)));
    if (!fs::exists(absolute, error)) {
      return absl::NotFoundError(absl::StrCat("nothing is at ", Quoted(absolute.string())));
    }
    return absolute.string();
  }
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::string relative, SpelledBelow(root, path));
  BLOCKSWAP_RETURN_IF_ERROR(OpenByKernel(root, relative, path, O_PATH).status());
  return relative == "." ? WithoutTrailingSlash(root)
                         : absl::StrCat(WithoutTrailingSlash(root), "/", relative);
}

absl::StatusOr<OwnedFd> OpenBelow(const std::string& root, const std::string& path, int flags) {
  if (path.find('\0') != std::string::npos) return Outside(path);
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::string relative, SpelledBelow(root, path));
  return OpenByKernel(root, relative, path, flags);
}

ScopedOpenRoots::ScopedOpenRoots(std::vector<std::string> roots)
    : roots_(std::move(roots)), before_(open_roots) {
  open_roots = &roots_;
}

ScopedOpenRoots::~ScopedOpenRoots() { open_roots = before_; }

const std::vector<std::string>* ScopedOpenRoots::current() { return open_roots; }

}  // namespace blockswap::worker
