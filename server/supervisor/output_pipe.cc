// SPDX-License-Identifier: Apache-2.0
#include "server/supervisor/output_pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"

namespace blockswap::server {
namespace {

// What a worker may print while it has no server; the kernel gives less to users with many pipes.
constexpr int kPipeBytes = 1 << 20;

}  // namespace

absl::StatusOr<UniqueFd> OpenOutputPipe(const std::string& path) {
  UniqueFd end(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW));
  if (!end.valid() && errno == ENOENT) {
    return absl::NotFoundError(absl::StrCat("there is no pipe ", path));
  }
  if (!end.valid()) return SystemError(absl::StrCat("cannot open the pipe ", path), errno);
  struct stat facts {};
  if (::fstat(end.get(), &facts) != 0 || !S_ISFIFO(facts.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is no pipe"));
  }
  return end;
}

absl::StatusOr<Pipe> MakeOutputPipe(const std::string& path) {
  if (::mkfifo(path.c_str(), 0600) != 0) {
    return SystemError(absl::StrCat("cannot make the pipe ", path), errno);
  }
  Pipe pipe;
  BLOCKSWAP_ASSIGN_OR_RETURN(pipe.read, OpenOutputPipe(path));
  pipe.write = UniqueFd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!pipe.write.valid()) return SystemError(absl::StrCat("cannot open the pipe ", path), errno);
  ::fcntl(pipe.write.get(), F_SETPIPE_SZ, kPipeBytes);
  return pipe;
}

}  // namespace blockswap::server
