// SPDX-License-Identifier: Apache-2.0
#include "server/supervisor/process_launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
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
#include "server/supervisor/output_pipe.h"
#include "server/supervisor/process_identity.h"
#include "server/supervisor/spawn_process.h"

namespace blockswap::server {
namespace {

constexpr int kTokenFd = 3;
constexpr int kMastersFd = 4;  // and those after it
constexpr char kOutputPipe[] = "/output";

absl::Status WriteFile(const std::string& path, const std::string& text) {
  const UniqueFd file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) return SystemError(absl::StrCat("cannot create ", path), errno);
  if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return SystemError(absl::StrCat("cannot write ", path), errno);
  }
  return absl::OkStatus();
}

std::string AttemptTag(const std::string& job_uid, int attempt) {
  return absl::StrCat(job_uid, "-", attempt);
}

UniqueFd OpenPidfd(int64_t pid) {
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0)));
}

// What a handle is made of.
struct WorkerParts {
  AttemptKey key;
  std::shared_ptr<ChildProcess> process;
  int64_t start_time = 0;
  std::string token_hash, directory;
};

class ProcessHandle : public WorkerHandle {
 public:
  ProcessHandle(WorkerParts parts, WorkerGateway& gateway)
      : parts_(std::move(parts)), gateway_(gateway) {}

  ~ProcessHandle() override {
    gateway_.Forget(parts_.key);
    std::error_code ignored;
    std::filesystem::remove_all(parts_.directory, ignored);
  }

  absl::Status Release() override { return absl::OkStatus(); }
  void Send(const WorkerCommand& command) override { gateway_.Send(parts_.key, command); }
  void Acknowledge(int64_t sequence) override { gateway_.Acknowledge(parts_.key, sequence); }
  void Signal(int signal) override { parts_.process->Signal(signal); }
  int64_t pid() const override { return parts_.process->pid(); }
  int64_t process_start_time() const override { return parts_.start_time; }
  std::string socket_path() const override { return gateway_.socket_path(); }
  std::string token_hash() const override { return parts_.token_hash; }

 private:
  const WorkerParts parts_;
  WorkerGateway& gateway_;
};

class SpawnedWorker final : public ProcessHandle {
 public:
  SpawnedWorker(WorkerParts parts, WorkerGateway& gateway, UniqueFd token_pipe, std::string token,
                std::vector<MasterStore::Use> masters)
      : ProcessHandle(std::move(parts), gateway),
        token_pipe_(std::move(token_pipe)),
        token_(std::move(token)),
        masters_(std::move(masters)) {}

  absl::Status Release() override {
    const ssize_t written = ::write(token_pipe_.get(), token_.data(), token_.size());
    token_pipe_.Reset();
    token_.clear();
    // A worker that died before it read the token is reported by its exit.
    return written >= 0 || errno == EPIPE ? absl::OkStatus()
                                          : SystemError("cannot pass the token", errno);
  }

 private:
  UniqueFd token_pipe_;
  std::string token_;
  const std::vector<MasterStore::Use> masters_;
};

}  // namespace

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
          options_.datasets_root,
          "--confine",
          options_.confinement};
}

std::vector<std::string> ProcessLauncher::Environment(const LaunchRequest& request,
                                                      size_t num_masters) const {
  std::vector<std::string> environment =
      WorkerEnvironment(request.visible_gpu, options_.passed_environment);
  environment.push_back(absl::StrCat("BLOCKSWAP_TOKEN_FD=", kTokenFd));
  environment.push_back(
      absl::StrCat(kAttemptVariable, "=", AttemptTag(request.job_uid, request.key.attempt)));
  std::string masters;
  for (size_t i = 0; i < num_masters; ++i) {
    absl::StrAppend(&masters, i == 0 ? "" : ",", kMastersFd + static_cast<int>(i));
  }
  if (!masters.empty()) environment.push_back(absl::StrCat("BLOCKSWAP_MASTERS_FD=", masters));
  return environment;
}

std::vector<MasterStore::Use> ProcessLauncher::TakeMasters(const LaunchRequest& request) {
  std::vector<MasterStore::Use> uses;
  for (const std::string& key : request.base_keys) {
    absl::StatusOr<MasterStore::Use> use = masters_.Take(key);
    if (!use.ok()) {
      LogWarning("job {}: its weights are not shared: {}", request.key.job_id,
                 std::string(use.status().message()));
      continue;
    }
    uses.push_back(*std::move(use));
  }
  // After the job's own files are taken: what is freed is of no use to it.
  const int64_t available = base::ReadHostFacts(options_.host_files).available_bytes;
  if (available < request.host_bytes) masters_.Free(request.host_bytes - available);
  return uses;
}

std::string ProcessLauncher::AttemptDirectory(const std::string& job_uid, int attempt) const {
  return absl::StrCat(options_.runtime_directory, "/", AttemptTag(job_uid, attempt));
}

std::unique_ptr<WorkerContainment> ProcessLauncher::Contain(const std::string& tag,
                                                            pid_t pid) const {
  std::optional<Cgroup> group;
  if (options_.cgroups.has_value()) {
    absl::StatusOr<Cgroup> made = options_.cgroups->Make(tag, options_.worker_limits);
    const absl::Status added = made.ok() ? made->Add(pid) : made.status();
    if (added.ok()) group = *std::move(made);
    // Training can do without; limits that were asked for are missed, so say it.
    if (!added.ok()) LogWarning("worker {}: {}", pid, std::string(added.message()));
  }
  return std::make_unique<WorkerContainment>(tag, std::move(group));
}

absl::StatusOr<std::unique_ptr<WorkerHandle>> ProcessLauncher::Launch(const LaunchRequest& request,
                                                                      AttemptObserver& observer) {
  const std::string tag = AttemptTag(request.job_uid, request.key.attempt);
  const std::string directory = AttemptDirectory(request.job_uid, request.key.attempt);
  BLOCKSWAP_RETURN_IF_ERROR(MakeDirectory(directory, 0700));
  absl::Cleanup remove_directory = [&directory] {
    std::error_code ignored;
    std::filesystem::remove_all(directory, ignored);
  };
  const std::string job_file = absl::StrCat(directory, "/job.json");
  BLOCKSWAP_RETURN_IF_ERROR(WriteFile(job_file, request.job_json));
  BLOCKSWAP_ASSIGN_OR_RETURN(
      AttemptLogWriter log,
      AttemptLogWriter::Open(request.output_directory, request.key.attempt, options_.log));
  BLOCKSWAP_ASSIGN_OR_RETURN(Pipe output, MakeOutputPipe(absl::StrCat(directory, kOutputPipe)));
  BLOCKSWAP_ASSIGN_OR_RETURN(Pipe token_pipe, MakePipe());

  std::vector<MasterStore::Use> masters = TakeMasters(request);
  std::vector<ChildDescriptor> descriptors = {{output.write.get(), STDOUT_FILENO},
                                              {output.write.get(), STDERR_FILENO},
                                              {token_pipe.read.get(), kTokenFd}};
  for (size_t i = 0; i < masters.size(); ++i) {
    descriptors.push_back({masters[i].fd(), kMastersFd + static_cast<int>(i)});
  }
  BLOCKSWAP_ASSIGN_OR_RETURN(const pid_t pid, SpawnProcess({Arguments(request, job_file),
                                                            Environment(request, masters.size()),
                                                            std::move(descriptors)}));
  UniqueFd pidfd = OpenPidfd(pid);
  if (!pidfd.valid()) {
    const int error = errno;
    ::kill(-pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return SystemError("cannot watch a worker", error);
  }
  // Until it has its token the worker waits.
  std::string token = ToHex(RandomBytes(32));
  WorkerParts parts{request.key, nullptr, ProcessStartTime(pid), ToHex(Sha256(token)), directory};
  gateway_.Expect({request.key, request.job_uid, parts.token_hash, pid}, observer);
  parts.process =
      std::make_shared<ChildProcess>(request.key, pid, std::move(pidfd), std::move(output.read),
                                     std::move(log), observer, Contain(tag, pid));
  monitor_.Watch(parts.process);
  std::move(remove_directory).Cancel();
  return std::make_unique<SpawnedWorker>(std::move(parts), gateway_, std::move(token_pipe.write),
                                         std::move(token), std::move(masters));
}

absl::StatusOr<std::unique_ptr<WorkerHandle>> ProcessLauncher::Adopt(const AdoptRequest& request,
                                                                     AttemptObserver& observer) {
  const AttemptRecord& record = request.record;
  if (record.pid <= 1 || record.process_start_time == 0 || record.boot_id != BootId()) {
    return absl::NotFoundError("its worker was gone");
  }
  // The descriptor pins the process: what is read of it afterwards is its own.
  UniqueFd pidfd = OpenPidfd(record.pid);
  if (!pidfd.valid() || ProcessStartTime(record.pid) != record.process_start_time) {
    return absl::NotFoundError("its worker was gone");
  }
  if (record.token_hash.empty() || record.socket != gateway_.socket_path()) {
    return absl::FailedPreconditionError(absl::StrCat("its worker looks for the server at \"",
                                                      record.socket, "\", this one is at ",
                                                      gateway_.socket_path()));
  }
  const std::string directory = AttemptDirectory(request.job_uid, request.key.attempt);
  auto output = OpenOutputPipe(absl::StrCat(directory, kOutputPipe));
  if (!output.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("its worker's output is lost: ", output.status().message()));
  }
  BLOCKSWAP_ASSIGN_OR_RETURN(
      AttemptLogWriter log,
      AttemptLogWriter::Open(request.output_directory, request.key.attempt, options_.log));
  const auto pid = static_cast<pid_t>(record.pid);
  const std::string tag = AttemptTag(request.job_uid, request.key.attempt);
  WorkerParts parts{request.key, nullptr, record.process_start_time, record.token_hash, directory};
  gateway_.Expect(
      {request.key, request.job_uid, record.token_hash, record.pid, record.last_sequence},
      observer);
  parts.process = std::make_shared<ChildProcess>(request.key, pid, std::move(pidfd),
                                                 *std::move(output), std::move(log), observer,
                                                 Contain(tag, pid), ChildProcess::Origin::kAdopted);
  monitor_.Watch(parts.process);
  adopted_.insert(tag);
  return std::make_unique<ProcessHandle>(std::move(parts), gateway_);
}

void ProcessLauncher::RemoveLeftovers() {
  std::error_code ignored;
  for (const auto& entry :
       std::filesystem::directory_iterator(options_.runtime_directory, ignored)) {
    if (adopted_.count(entry.path().filename().string()) != 0) continue;
    std::filesystem::remove_all(entry.path(), ignored);
  }
  if (options_.cgroups.has_value()) {
    for (const Cgroup& group : options_.cgroups->List()) {
      const auto is_group = [this, &group](const std::string& tag) {
        const auto adopted = options_.cgroups->Find(tag);
        return adopted.has_value() && adopted->directory() == group.directory();
      };
      if (std::any_of(adopted_.begin(), adopted_.end(), is_group)) continue;
      group.Kill().IgnoreError();    // gone, or empty
      group.Remove().IgnoreError();  // in use for a moment: the next start tries again
    }
  }
  adopted_.clear();
}

}  // namespace blockswap::server
