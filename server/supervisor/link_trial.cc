// SPDX-License-Identifier: Apache-2.0
#include "server/supervisor/link_trial.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "server/base/wall_clock.h"
#include "server/supervisor/spawn_process.h"

namespace blockswap::server {
namespace {

constexpr size_t kMaxReportBytes = 64 << 10;

// Everything until the end of `output`. DeadlineExceeded, or Cancelled when `stop` is closed.
absl::StatusOr<std::string> ReadAll(int output, int stop, SteadyTime deadline) {
  std::string text;
  char buffer[4096];
  while (text.size() < kMaxReportBytes) {
    pollfd fds[2] = {{output, POLLIN, 0}, {stop, POLLIN, 0}};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyNow()).count();
    if (left <= 0) return absl::DeadlineExceededError("the link test does not end");
    if (::poll(fds, 2, static_cast<int>(left)) < 0 && errno != EINTR) {
      return absl::InternalError(absl::StrCat("poll: ", std::strerror(errno)));
    }
    if (fds[1].revents != 0) return absl::CancelledError("the server stops");
    if (fds[0].revents == 0) continue;
    const ssize_t got = ::read(output, buffer, sizeof(buffer));
    if (got < 0 && errno != EINTR) {
      return absl::InternalError(absl::StrCat("read: ", std::strerror(errno)));
    }
    if (got == 0) return text;
    if (got > 0) text.append(buffer, static_cast<size_t>(got));
  }
  return absl::InternalError("the link test's report has no end");
}

}  // namespace

absl::StatusOr<MeasuredLink> RunLinkTrial(const DeviceState& device,
                                          const LinkTrialOptions& options, int stop_fd) {
  BLOCKSWAP_ASSIGN_OR_RETURN(Pipe output, MakePipe());
  const bool is_host = device.kind == DeviceKind::kHost;
  BLOCKSWAP_ASSIGN_OR_RETURN(
      const pid_t pid, SpawnProcess({{options.worker_binary, "link-test", "--device",
                                      is_host ? "host" : "cuda:0", "-o", "json"},
                                     WorkerEnvironment(device.uuid, options.passed_environment),
                                     {{output.write.get(), STDOUT_FILENO}}}));
  output.write.Reset();
  const auto report = ReadAll(output.read.get(), stop_fd, SteadyNow() + options.timeout);
  if (!report.ok()) ::kill(-pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  BLOCKSWAP_RETURN_IF_ERROR(report.status());
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return absl::InternalError(absl::StrCat("the link test ended with status ", status));
  }
  BLOCKSWAP_ASSIGN_OR_RETURN(MeasuredLink link, ParseLinkTest(*report));
  link.measured_micros = WallMicros();
  return link;
}

}  // namespace blockswap::server
