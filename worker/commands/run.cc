// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/run.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "offload/base/status_macros.h"
#include "worker/channel/server_channel.h"
#include "worker/commands/command.h"
#include "worker/io/atomic_file.h"
#include "worker/io/regular_file.h"
#include "worker/train/failure.h"
#include "worker/train/stop_signals.h"
#include "worker/train/trainer.h"

namespace blockswap::worker {
namespace {

constexpr int kDefaultTokenFd = 3;
constexpr char kTokenFdVariable[] = "BLOCKSWAP_TOKEN_FD";
constexpr char kMastersFdVariable[] = "BLOCKSWAP_MASTERS_FD";
constexpr size_t kMaxTokenBytes = 4096;
constexpr int64_t kMaxJobBytes = int64_t{1} << 20;

struct RunFlags {
  std::string job_json, output, device;
  ServerChannelOptions channel;
  Roots roots;
};

void AddOptions(CLI::App* app, RunFlags* flags) {
  app->add_option("--job-json", flags->job_json, "the job as the JSON mapping of JobSpec")
      ->required();
  app->add_option("--output", flags->output, "output directory")->required();
  app->add_option("--socket", flags->channel.socket_path, "the server's worker socket")->required();
  app->add_option("--job-uid", flags->channel.job_uid)->required();
  app->add_option("--attempt", flags->channel.attempt)->required();
  app->add_option("--device", flags->device, "overrides the job's device");
  app->add_option("--models", flags->roots.models);
  app->add_option("--datasets", flags->roots.datasets);
}

// The token comes through an inherited pipe or file, so that no process list shows it.
absl::StatusOr<std::string> ReadToken() {
  int fd = kDefaultTokenFd;
  if (const char* variable = std::getenv(kTokenFdVariable);
      variable != nullptr && !absl::SimpleAtoi(variable, &fd)) {
    return absl::InvalidArgumentError(
        absl::StrCat(kTokenFdVariable, " is no number: '", variable, "'"));
  }
  const OwnedFd owned(fd);
  std::string token(kMaxTokenBytes, '\0');
  size_t size = 0;
  while (size < token.size()) {
    const ssize_t count = read(fd, token.data() + size, token.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      return ErrnoStatus(errno,
                         absl::StrCat("cannot read the attempt's token from file descriptor ", fd));
    if (count == 0) break;
    size += static_cast<size_t>(count);
  }
  token.resize(size);
  return std::string(absl::StripSuffix(token, "\n"));
}

// The server's memory for shared base weights, inherited; -1: none.
int MastersFd() {
  int fd = -1;
  const char* variable = std::getenv(kMastersFdVariable);
  if (variable == nullptr || !absl::SimpleAtoi(variable, &fd) || fcntl(fd, F_GETFD) < 0) return -1;
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  return fd;
}

absl::StatusOr<std::unique_ptr<Reporter>> Connect(RunFlags* flags) {
  BLOCKSWAP_ASSIGN_OR_RETURN(flags->channel.token, ReadToken());
  return ConnectToServer(flags->channel);
}

absl::StatusOr<JobInspection> OpenAttempt(const RunFlags& flags) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::string json, ReadTextFile(flags.job_json, kMaxJobBytes));
  absl::StatusOr<SpecResult> spec = LoadJobJson(json, flags.roots);
  if (spec.ok() && spec->config.has_value() && !flags.device.empty())
    spec->config->device = flags.device;
  return OpenJob(std::move(spec));
}

ExitReport RunWith(const RunFlags& flags, Reporter* reporter) {
  absl::StatusOr<JobInspection> job = OpenAttempt(flags);
  if (!job.ok()) {
    ExitReport report = ToExitReport(job.status());
    reporter->Exiting(report);
    return report;
  }
  TrainerOptions options;
  options.output_directory = flags.output;
  options.stop_requested = SignalledStop;
  options.log_to_stderr = true;
  options.masters_fd = MastersFd();
  return Trainer(*std::move(job), std::move(options), reporter).Run();
}

}  // namespace

int RunAttempt(int argc, char** argv) {
  CLI::App app("runs one attempt of a job for a server", "blockswap-worker run");
  RunFlags flags;
  AddOptions(&app, &flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageExit;
  }

  InstallStopSignals(/*on_interrupt=*/false);
  ExitReport report;
  absl::StatusOr<std::unique_ptr<Reporter>> reporter = Connect(&flags);
  report = reporter.ok() ? RunWith(flags, reporter->get()) : ToExitReport(reporter.status());
  if (report.code != ExitCode::kOk) PrintFailure(report.message);

  std::error_code ignored;  // the write below reports it
  std::filesystem::create_directories(flags.output, ignored);
  const absl::Status written =
      WriteFileAtomically(flags.output + "/exit.json", ExitReportToJson(report));
  if (!written.ok()) PrintFailure(std::string(written.message()));
  return static_cast<int>(report.code);
}

}  // namespace blockswap::worker
