// SPDX-License-Identifier: Apache-2.0
#include "server/supervisor/spawn_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"

namespace blockswap::server {
namespace {

// Above every number a child gets, so that no inherited descriptor overwrites another.
constexpr int kFirstSafeFd = 16;

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

absl::StatusOr<UniqueFd> Above(int fd) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, kFirstSafeFd));
  if (!copy.valid()) return SystemError("cannot copy a descriptor", errno);
  return copy;
}

}  // namespace

absl::Status SystemError(const std::string& what, int error) {
  const std::string message = absl::StrCat(what, ": ", std::strerror(error));
  return error == EAGAIN || error == ENOMEM || error == EMFILE || error == ENFILE || error == ENOSPC
             ? absl::ResourceExhaustedError(message)
             : absl::InternalError(message);
}

absl::StatusOr<Pipe> MakePipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return SystemError("cannot make a pipe", errno);
  return Pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

std::vector<std::string> WorkerEnvironment(const std::string& visible_gpu,
                                           const std::vector<std::string>& passed) {
  std::vector<std::string> environment = {"LANG=C.UTF-8",
                                          absl::StrCat("CUDA_VISIBLE_DEVICES=", visible_gpu)};
  for (const std::string& name : passed) {
    const char* value = std::getenv(name.c_str());
    if (value != nullptr) environment.push_back(absl::StrCat(name, "=", value));
  }
  return environment;
}

absl::StatusOr<pid_t> SpawnProcess(SpawnRequest request) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  absl::Cleanup destroy = [&actions, &attributes] {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  };
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<UniqueFd> copies;
  int last = STDERR_FILENO;
  for (const ChildDescriptor& descriptor : request.descriptors) {
    BLOCKSWAP_ASSIGN_OR_RETURN(UniqueFd copy, Above(descriptor.ours));
    posix_spawn_file_actions_adddup2(&actions, copy.get(), descriptor.number);
    copies.push_back(std::move(copy));
    last = std::max(last, descriptor.number);
  }
  posix_spawn_file_actions_addclosefrom_np(&actions, last + 1);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(
      &attributes,
      static_cast<short>(POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));
  std::vector<char*> argv = Pointers(request.arguments);
  std::vector<char*> envp = Pointers(request.environment);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, argv[0], &actions, &attributes, argv.data(), envp.data());
  if (error != 0) return SystemError(absl::StrCat("cannot start ", request.arguments[0]), error);
  return pid;
}

}  // namespace blockswap::server
