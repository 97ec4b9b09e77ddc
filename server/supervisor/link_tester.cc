// SPDX-License-Identifier: Apache-2.0
#include "server/supervisor/link_tester.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "server/base/log.h"
#include "server/base/thread_name.h"
#include "server/base/wall_clock.h"

namespace blockswap::server {
namespace {

constexpr size_t kMaxReportBytes = 64 << 10;

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Standard output goes to `output`, everything else to nowhere; own process group.
absl::StatusOr<pid_t> Spawn(std::vector<std::string> arguments,
                            std::vector<std::string> environment, int output) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  absl::Cleanup destroy = [&actions, &attributes] {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  };
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, 1);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addclosefrom_np(&actions, 3);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(
      &attributes,
      static_cast<short>(POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));
  std::vector<char*> argv = Pointers(arguments);
  std::vector<char*> envp = Pointers(environment);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, argv[0], &actions, &attributes, argv.data(), envp.data());
  if (error != 0) {
    return absl::InternalError(
        absl::StrCat("cannot start ", arguments[0], ": ", std::strerror(error)));
  }
  return pid;
}

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

LinkTester::LinkTester(JobStore& store, DeviceTable& devices, LinkTesterOptions options)
    : store_(store), devices_(devices), options_(std::move(options)) {
  int fds[2] = {-1, -1};
  if (::pipe2(fds, O_CLOEXEC) != 0) {
    LogWarning("links are not measured: {}", std::strerror(errno));
    return;
  }
  stop_read_ = UniqueFd(fds[0]);
  stop_write_ = UniqueFd(fds[1]);
  thread_ = std::thread([this] { Run(); });
}

LinkTester::~LinkTester() {
  stop_write_.Reset();
  Join();
}

void LinkTester::Join() {
  if (thread_.joinable()) thread_.join();
}

void LinkTester::Run() {
  NameThisThread("link-test");
  for (const DeviceState& device : devices_.List()) {
    const auto known = store_.FindLink(device.link_key);
    if (known.ok() && known->has_value()) {
      devices_.SetLink(device.name, **known);
      continue;
    }
    const absl::StatusOr<MeasuredLink> measured = Measure(device);
    if (absl::IsCancelled(measured.status())) return;
    if (!measured.ok()) {
      LogWarning("device {}: its link is not measured: {}", device.name,
                 std::string(measured.status().message()));
      continue;
    }
    devices_.SetLink(device.name, *measured);
    LogInfo("device {}: {:.1f} GB/s to it, {:.1f} GB/s from it, duplex factor {:.2f}", device.name,
            measured->h2d / 1e9, measured->d2h / 1e9, measured->duplex_factor);
    const absl::Status saved = store_.SaveLink(device.link_key, *measured);
    if (!saved.ok()) LogWarning("device {}: {}", device.name, std::string(saved.message()));
  }
}

absl::StatusOr<MeasuredLink> LinkTester::Measure(const DeviceState& device) {
  int fds[2] = {-1, -1};
  if (::pipe2(fds, O_CLOEXEC) != 0) return absl::ResourceExhaustedError(std::strerror(errno));
  const UniqueFd output(fds[0]);
  UniqueFd write_end(fds[1]);
  const bool is_host = device.kind == DeviceKind::kHost;
  std::vector<std::string> environment = {"LANG=C.UTF-8",
                                          absl::StrCat("CUDA_VISIBLE_DEVICES=", device.uuid)};
  for (const std::string& name : options_.passed_environment) {
    const char* value = std::getenv(name.c_str());
    if (value != nullptr) environment.push_back(absl::StrCat(name, "=", value));
  }
  BLOCKSWAP_ASSIGN_OR_RETURN(const pid_t pid,
                             Spawn({options_.worker_binary, "link-test", "--device",
                                    is_host ? "host" : "cuda:0", "-o", "json"},
                                   std::move(environment), write_end.get()));
  write_end.Reset();
  const auto report = ReadAll(output.get(), stop_read_.get(), SteadyNow() + options_.timeout);
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
