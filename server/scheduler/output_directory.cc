// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/output_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "server/base/reason.h"

namespace blockswap::server {
namespace {

absl::Status Unusable(const std::string& path, int error, const std::string& what) {
  // Something that lies in the way stays there; a mount, a right or a server of files may come
  // back.
  const bool may_pass = error != EEXIST && error != ENOTDIR && error != ENAMETOOLONG &&
                        error != ELOOP && error != EINVAL;
  const std::string message =
      absl::StrCat("the output directory ", path, " ", what, ": ", std::strerror(error));
  return WithReason(
      may_pass ? absl::UnavailableError(message) : absl::FailedPreconditionError(message),
      kOutputUnavailable, {{"path", path}});
}

}  // namespace

absl::Status PrepareOutputDirectory(const std::string& path, bool has_checkpoints) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) {
    if (errno != ENOENT) return Unusable(path, errno, "cannot be looked at");
    if (has_checkpoints) {
      return Unusable(path, ENOENT,
                      "has the job's checkpoints and is gone (deleted, or its file system is not "
                      "mounted)");
    }
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
    if (error) return Unusable(path, error.value(), "cannot be made");
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
      return Unusable(path, errno, "cannot be made");
    }
  } else if (!S_ISDIR(facts.st_mode)) {
    return Unusable(path, ENOTDIR, "cannot be used");
  }
  if (::access(path.c_str(), W_OK | X_OK) != 0) return Unusable(path, errno, "cannot be written");
  return absl::OkStatus();
}

}  // namespace blockswap::server
