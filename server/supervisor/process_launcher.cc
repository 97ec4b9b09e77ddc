// SPDX-License-Identifier: Apache-2.0
#include "server/supervisor/process_launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "offload/base/host_facts.h"
#include "offload/base/status_macros.h"
#include "server/base/file_lock.h"
#include "server/base/log.h"
#include "server/base/random_text.h"
#include "server/supervisor/process_identity.h"

namespace blockswap::server {
namespace {

constexpr int kTokenFd = 3;
constexpr int kMastersFd = 4;
// Above every number a worker gets, so that no inherited descriptor overwrites another.
constexpr int kFirstSafeFd = 16;

absl::Status Errno(const std::string& what, int error) {
  const std::string message = absl::StrCat(what, ": ", std::strerror(error));
  return error == EAGAIN || error == ENOMEM || error == EMFILE || error == ENFILE || error == ENOSPC
             ? absl::ResourceExhaustedError(message)
             : absl::InternalError(message);
}

struct Pipe {
  UniqueFd read, write;
};

absl::StatusOr<Pipe> MakePipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return Errno("cannot make a pipe", errno);
  return Pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  const UniqueFd file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) return Errno(absl::StrCat("cannot create ", path), errno);
  if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return Errno(absl::StrCat("cannot write ", path), errno);
  }
  return absl::OkStatus();
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

absl::StatusOr<UniqueFd> Above(int fd) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, kFirstSafeFd));
  if (!copy.valid()) return Errno("cannot copy a descriptor", errno);
  return copy;
}

struct InheritedFds {
  int output = -1, token = -1;
  int masters = -1;  // -1: none
};

// Own session and process group, default signals, nothing open but 0-4.
absl::StatusOr<pid_t> Spawn(const std::string& binary, std::vector<std::string> arguments,
                            std::vector<std::string> environment, const InheritedFds& fds) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const UniqueFd output, Above(fds.output));
  BLOCKSWAP_ASSIGN_OR_RETURN(const UniqueFd token, Above(fds.token));
  UniqueFd masters;
  if (fds.masters >= 0) {
    BLOCKSWAP_ASSIGN_OR_RETURN(masters, Above(fds.masters));
  }
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  absl::Cleanup destroy = [&actions, &attributes] {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  };
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, output.get(), 2);
  posix_spawn_file_actions_adddup2(&actions, token.get(), kTokenFd);
  if (masters.valid()) posix_spawn_file_actions_adddup2(&actions, masters.get(), kMastersFd);
  posix_spawn_file_actions_addclosefrom_np(&actions, (masters.valid() ? kMastersFd : kTokenFd) + 1);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(
      &attributes,
      static_cast<short>(POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));
  std::vector<char*> argv = Pointers(arguments);
  std::vector<char*> envp = Pointers(environment);
  pid_t pid = 0;
  const int error =
      posix_spawn(&pid, binary.c_str(), &actions, &attributes, argv.data(), envp.data());
  if (error != 0) return Errno(absl::StrCat("cannot start ", binary), error);
  return pid;
}

class SpawnedWorker final : public WorkerHandle {
 public:
  SpawnedWorker(AttemptKey key, std::shared_ptr<ChildProcess> child, WorkerGateway& gateway,
                UniqueFd token_pipe, std::string token, std::string directory,
                MasterStore::Use masters)
      : key_(std::move(key)),
        child_(std::move(child)),
        gateway_(gateway),
        token_pipe_(std::move(token_pipe)),
        token_(std::move(token)),
        directory_(std::move(directory)),
        masters_(std::move(masters)),
        start_time_(ProcessStartTime(child_->pid())) {}

  ~SpawnedWorker() override {
    gateway_.Forget(key_);
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }

  absl::Status Release() override {
    const ssize_t written = ::write(token_pipe_.get(), token_.data(), token_.size());
    token_pipe_.Reset();
    token_.clear();
    // A worker that died before it read the token is reported by its exit.
    return written >= 0 || errno == EPIPE ? absl::OkStatus()
                                          : Errno("cannot pass the token", errno);
  }
  void Send(const WorkerCommand& command) override { gateway_.Send(key_, command); }
  void Acknowledge(int64_t sequence) override { gateway_.Acknowledge(key_, sequence); }
  void Signal(int signal) override { child_->Signal(signal); }
  int64_t pid() const override { return child_->pid(); }
  int64_t process_start_time() const override { return start_time_; }

 private:
  const AttemptKey key_;
  const std::shared_ptr<ChildProcess> child_;
  WorkerGateway& gateway_;
  UniqueFd token_pipe_;
  std::string token_;
  const std::string directory_;
  const MasterStore::Use masters_;
  const int64_t start_time_;
};

}  // namespace

std::string AttemptLogPath(const std::string& output_directory, int attempt) {
  return absl::StrCat(output_directory, "/attempt-", attempt, ".log");
}

std::vector<std::string> ProcessLauncher::Arguments(const LaunchRequest& request,
                                                    const std::string& job_file) const {
  return {options_.worker_binary,
          "run",
          "--job-json",
          job_file,
          "--output",
          request.output_directory,
          "--socket",
          gateway_.socket_path(),
          "--job-uid",
          request.job_uid,
          "--attempt",
          absl::StrCat(request.key.attempt),
          "--device",
          request.device,
          "--models",
          options_.models_root,
          "--datasets",
          options_.datasets_root};
}

std::vector<std::string> ProcessLauncher::Environment(const LaunchRequest& request,
                                                      bool has_masters) const {
  std::vector<std::string> environment = {
      "LANG=C.UTF-8", absl::StrCat("BLOCKSWAP_TOKEN_FD=", kTokenFd),
      absl::StrCat("CUDA_VISIBLE_DEVICES=", request.visible_gpu)};
  for (const std::string& name : options_.passed_environment) {
    const char* value = std::getenv(name.c_str());
    if (value != nullptr) environment.push_back(absl::StrCat(name, "=", value));
  }
  if (has_masters) environment.push_back(absl::StrCat("BLOCKSWAP_MASTERS_FD=", kMastersFd));
  return environment;
}

MasterStore::Use ProcessLauncher::TakeMasters(const LaunchRequest& request) {
  absl::StatusOr<std::string> key =
      options_.masters_key == nullptr ? std::string() : options_.masters_key(request.job_json);
  absl::StatusOr<MasterStore::Use> use = MasterStore::Use();
  if (key.ok() && !key->empty()) use = masters_.Take(*key);
  const absl::Status status = key.ok() ? use.status() : key.status();
  if (!status.ok()) {
    LogWarning("job {}: its weights are not shared: {}", request.key.job_id,
               std::string(status.message()));
  }
  // After the job's own file is taken: what is freed is of no use to it.
  const int64_t available = base::ReadHostFacts().available_bytes;
  if (available < request.host_bytes) masters_.Free(request.host_bytes - available);
  return use.ok() ? *std::move(use) : MasterStore::Use();
}

absl::StatusOr<std::unique_ptr<WorkerHandle>> ProcessLauncher::Launch(const LaunchRequest& request,
                                                                      AttemptObserver& observer) {
  const std::string directory =
      absl::StrCat(options_.runtime_directory, "/", request.job_uid, "-", request.key.attempt);
  BLOCKSWAP_RETURN_IF_ERROR(MakeDirectory(directory, 0700));
  absl::Cleanup remove_directory = [&directory] {
    std::error_code ignored;
    std::filesystem::remove_all(directory, ignored);
  };
  const std::string job_file = absl::StrCat(directory, "/job.json");
  BLOCKSWAP_RETURN_IF_ERROR(WriteFile(job_file, request.job_json));
  const std::string log_path = AttemptLogPath(request.output_directory, request.key.attempt);
  UniqueFd log(
      ::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!log.valid()) return Errno(absl::StrCat("cannot open the log ", log_path), errno);
  BLOCKSWAP_ASSIGN_OR_RETURN(Pipe output, MakePipe());
  BLOCKSWAP_ASSIGN_OR_RETURN(Pipe token_pipe, MakePipe());
  ::fcntl(output.read.get(), F_SETFL, O_NONBLOCK);

  const std::string token = ToHex(RandomBytes(32));
  gateway_.Expect(request.key, request.job_uid, token, observer);
  MasterStore::Use masters = TakeMasters(request);
  auto pid = Spawn(options_.worker_binary, Arguments(request, job_file),
                   Environment(request, masters.fd() >= 0),
                   {output.write.get(), token_pipe.read.get(), masters.fd()});
  if (!pid.ok()) {
    gateway_.Forget(request.key);
    return pid.status();
  }
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, *pid, 0)));
  auto child =
      std::make_shared<ChildProcess>(request.key, *pid, std::move(pidfd), std::move(output.read),
                                     std::move(log), options_.log_limit_bytes, observer);
  std::move(remove_directory).Cancel();
  auto handle =
      std::make_unique<SpawnedWorker>(request.key, child, gateway_, std::move(token_pipe.write),
                                      token, directory, std::move(masters));
  monitor_.Watch(std::move(child));
  return handle;
}

}  // namespace blockswap::server
