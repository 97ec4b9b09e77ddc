// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/train.h"

#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/time/time.h"
#include "worker/channel/console_reporter.h"
#include "worker/commands/command.h"
#include "worker/train/failure.h"
#include "worker/train/stop_signals.h"
#include "worker/train/trainer.h"

namespace blockswap::worker {
namespace {

constexpr char kHidden[] = "";  // CLI11 leaves options of the empty group out of the help

struct TrainFlags {
  std::string file, output;
  std::vector<std::string> overrides;
  Roots roots;
  offload::HostDeviceOptions host;
  double host_latency_seconds = 0;
};

void AddOptions(CLI::App* app, TrainFlags* flags) {
  app->add_option("FILE", flags->file, "job file (YAML or JSON)")->required();
  app->add_option("--set", flags->overrides, "override a field: memory.ring_size=1")->take_all();
  app->add_option("--output", flags->output, "output directory; default: output/NAME");
  app->add_option("--models", flags->roots.models, "directory below which weights are named");
  app->add_option("--datasets", flags->roots.datasets,
                  "directory below which datasets and prompts are named");
  app->add_option("--host-h2d-bytes-per-second", flags->host.h2d_bytes_per_second)->group(kHidden);
  app->add_option("--host-d2h-bytes-per-second", flags->host.d2h_bytes_per_second)->group(kHidden);
  app->add_option("--host-copy-latency-seconds", flags->host_latency_seconds)->group(kHidden);
  app->add_flag("--host-copies-need-pinned-memory", flags->host.copies_need_pinned_memory)
      ->group(kHidden);
}

int Fail(const absl::Status& status) {
  PrintFailure(std::string(status.message()));
  return static_cast<int>(ToExitReport(status).code);
}

}  // namespace

int RunTrain(int argc, char** argv) {
  CLI::App app("trains one job, without a server", "blockswap-worker train");
  TrainFlags flags;
  AddOptions(&app, &flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageExit;
  }
  flags.host.latency = absl::Seconds(flags.host_latency_seconds);

  InstallStopSignals(/*on_interrupt=*/true);
  absl::StatusOr<JobInspection> job =
      OpenJob(LoadJobFile(flags.file, flags.overrides, flags.roots));
  if (!job.ok()) return Fail(job.status());
  TrainerOptions options;
  options.output_directory =
      flags.output.empty() ? "output/" + job->config.output.name : flags.output;
  options.host = flags.host;
  options.stop_requested = SignalledStop;
  ConsoleReporter reporter(StandardErrorOptions());
  Trainer trainer(*std::move(job), std::move(options), &reporter);
  return static_cast<int>(trainer.Run().code);
}

}  // namespace blockswap::worker
