// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/run.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "offload/base/status_macros.h"
#include "worker/channel/exit_report_json.h"
#include "worker/channel/server_channel.h"
#include "worker/channel/stack_dump.h"
#include "worker/commands/command.h"
#include "worker/io/atomic_file.h"
#include "worker/io/regular_file.h"
#include "worker/sandbox/confinement.h"
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
  std::string confinement = "auto";
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
  app->add_option("--confine", flags->confinement,
                  "auto, required or off: what this process may open");
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

// The server's memory for shared base weights, inherited: "4" or "4,5"; empty: none.
std::vector<int> MastersFds() {
  std::vector<int> fds;
  const char* variable = std::getenv(kMastersFdVariable);
  if (variable == nullptr) return fds;
  for (const absl::string_view text : absl::StrSplit(variable, ',')) {
    int fd = -1;
    if (!absl::SimpleAtoi(text, &fd) || fcntl(fd, F_GETFD) < 0) continue;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fds.push_back(fd);
  }
  return fds;
}

absl::StatusOr<std::unique_ptr<Reporter>> Connect(RunFlags* flags) {
  BLOCKSWAP_ASSIGN_OR_RETURN(flags->channel.token, ReadToken());
  flags->channel.prints_to_server = true;
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
  options.masters_fds = MastersFds();
  return Trainer(*std::move(job), std::move(options), reporter).Run();
}

// Before anything of the job is read, and before there are threads.
absl::Status Confine(const RunFlags& flags) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const ConfinementMode mode, ParseConfinementMode(flags.confinement));
  AllowedPaths paths = SystemPaths();
  for (const std::string& root : {flags.roots.models, flags.roots.datasets}) {
    // Without a root the job may name any file.
    paths.data.push_back(root.empty() ? "/" : root);
  }
  // The job and the FIFO that this process prints to.
  paths.devices.push_back(std::filesystem::path(flags.job_json).parent_path().string());
  // Beside it are the outputs of the job that this one may go on from.
  const std::string beside = std::filesystem::path(flags.output).parent_path().string();
  paths.data.push_back(beside);
  // The server has made it; a person's own run makes it later.
  std::error_code ignored;
  const bool is_there = std::filesystem::is_directory(flags.output, ignored);
  paths.output.push_back(is_there ? flags.output : beside);
  BLOCKSWAP_ASSIGN_OR_RETURN(const Confinement done, ConfineThisProcess(mode, paths));
  if (mode != ConfinementMode::kOff) std::fprintf(stderr, "%s\n", done.ToText().c_str());
  return absl::OkStatus();
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

  const absl::Status confined = Confine(flags);
  InstallStopSignals(/*on_interrupt=*/false);
  InstallStackDump();
  const absl::StatusOr<std::unique_ptr<Reporter>> reporter =
      confined.ok() ? Connect(&flags) : absl::StatusOr<std::unique_ptr<Reporter>>(confined);
  if (!reporter.ok()) {
    // No server gave us the job: its outputs are none of our business, not even to say so.
    PrintFailure(std::string(reporter.status().message()));
    return static_cast<int>(ToExitReport(reporter.status()).code);
  }
  const ExitReport report = RunWith(flags, reporter->get());
  if (report.code != ExitCode::kOk) PrintFailure(report.message);

  std::error_code ignored;  // the write below reports it
  std::filesystem::create_directories(flags.output, ignored);
  const absl::Status written = WriteFileAtomically(flags.output + "/exit.json",
                                                   ExitReportToJson(report, flags.channel.attempt));
  if (!written.ok()) PrintFailure(std::string(written.message()));
  return static_cast<int>(report.code);
}

}  // namespace blockswap::worker
