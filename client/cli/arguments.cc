// SPDX-License-Identifier: Apache-2.0
#include "client/cli/arguments.h"

#include <algorithm>
#include <map>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/cli/exit_code.h"
#include "offload/base/nearest_name.h"
#include "proto/job_file/job_file.h"

namespace blockswap::cli {
namespace {

// What CLI11 fills before it becomes Arguments.
struct Raw {
  Arguments arguments;
  std::string format = "table";
  std::string job;
  std::string timeout;
  std::string blocks_to_swap, ring_size, vram_budget;
  bool pinned = false, h2d_only = false, no_colour = false;
  int64_t tail = 0;
  std::vector<std::string> set;
};

std::string CheckDuration(const std::string& text) {
  absl::Duration duration;
  double seconds = 0;
  const bool good = (absl::ParseDuration(text, &duration) && duration >= absl::ZeroDuration()) ||
                    (absl::SimpleAtod(text, &seconds) && seconds >= 0);
  return good ? "" : absl::StrCat("not a duration: ", text, "; write 90, 30s, 5m or 1h30m");
}

absl::Duration ToDuration(const std::string& text) {
  absl::Duration duration;
  if (absl::ParseDuration(text, &duration)) return duration;
  double seconds = 0;
  return absl::SimpleAtod(text, &seconds) ? absl::Seconds(seconds) : absl::InfiniteDuration();
}

void AddJobFile(CLI::App* command, Raw* raw) {
  command
      ->add_option("FILE", raw->arguments.source.file,
                   "job file, YAML or JSON; - is standard input")
      ->required();
  command->add_option("--set", raw->set, "override, as in --set memory.ring_size=1")
      ->allow_extra_args(false);
  const std::string group = "Memory";
  command
      ->add_option("--vram_budget", raw->vram_budget,
                   "memory.vram_budget: device bytes, as in 12GiB")
      ->group(group);
  command
      ->add_option("--blocks_to_swap", raw->blocks_to_swap,
                   "memory.blocks_to_swap: auto or how many")
      ->group(group);
  command->add_option("--block_swap_ring_size", raw->ring_size, "memory.ring_size: device slots")
      ->group(group);
  command->add_flag("--block_swap_h2d_only", raw->h2d_only, "memory.mode=h2d_only (the default)")
      ->group(group);
  command
      ->add_flag("--use_pinned_memory_for_block_swap", raw->pinned,
                 "memory.pinned_memory=auto: lock what the system allows (the default)")
      ->group(group);
}

void AddJob(CLI::App* command, Raw* raw) {
  command->add_option("JOB", raw->job, "job id, or the beginning of one")->required();
}

void AddFileCommands(CLI::App* app, Raw* raw) {
  CLI::App* submit = app->add_subcommand("submit", "Send a job to the server");
  AddJobFile(submit, raw);
  Arguments& arguments = raw->arguments;
  CLI::Option* follow =
      submit->add_flag("-f,--follow", arguments.follow, "show progress until the job has ended");
  CLI::Option* wait = submit->add_flag("-w,--wait", arguments.wait, "wait until the job has ended");
  wait->excludes(follow);
  submit->add_flag("--dry-run", arguments.dry_run, "check and plan, do not create")
      ->excludes(follow)
      ->excludes(wait);
  submit->add_option("--id", arguments.id, "id of the job; default: made by the server");
  submit->add_flag("-q,--quiet", arguments.quiet, "print the job's id and nothing else");
  CLI::App* plan = app->add_subcommand(
      "plan", "Show what would stay, what would be streamed, and what it costs");
  AddJobFile(plan, raw);
  plan->add_option("--device-profile", arguments.device_profile,
                   "plan for a known card, as in rtx4090, instead of a device of the server");
  AddJobFile(app->add_subcommand("validate", "Check a job file, with every fault at once"), raw);
}

void AddJobCommands(CLI::App* app, Raw* raw) {
  Arguments& arguments = raw->arguments;
  CLI::App* list = app->add_subcommand("list", "Jobs that are active or ended in the last 24 hours")
                       ->alias("ps");
  list->add_flag("-A,--all", arguments.all, "all jobs");
  list->add_option("--state", arguments.state, "only jobs in this state, as in RUNNING");
  list->add_option("-l,--label", arguments.labels, "only jobs with this label, KEY=VALUE")
      ->allow_extra_args(false);

  AddJob(app->add_subcommand("get", "One job in a line"), raw);
  AddJob(app->add_subcommand("describe", "Everything about one job"), raw);

  CLI::App* logs = app->add_subcommand("logs", "What the job's worker printed");
  AddJob(logs, raw);
  logs->add_flag("-f,--follow", arguments.follow, "go on until the job has ended");
  logs->add_option("--tail", raw->tail, "only the last lines")->check(CLI::NonNegativeNumber);
  logs->add_option("--attempt", arguments.attempt, "of this attempt; default: the latest")
      ->check(CLI::PositiveNumber);

  app->add_subcommand("watch", "Events as they happen, of one job or of all")
      ->add_option("JOB", raw->job, "job id, or the beginning of one");

  CLI::App* wait = app->add_subcommand("wait", "Wait for jobs; the exit code says how they ended");
  wait->add_option("JOB", arguments.jobs, "job ids, or their beginnings")->required();
  wait->add_option("--for", arguments.wait_for,
                   "what to wait for (an ended job always ends the wait)")
      ->check(CLI::IsMember({"terminal", "running", "succeeded"}));
  wait->add_option("--timeout", raw->timeout, "give up after this, exit code 5")
      ->check(CheckDuration);

  CLI::App* update = app->add_subcommand(
      "update", "Change memory settings, priority, labels or retries of a job, also while it runs");
  AddJob(update, raw);
  update
      ->add_option("--set", raw->set,
                   "as in --set memory.vram_budget=10GiB, priority=5, labels.team=vision")
      ->required()
      ->allow_extra_args(false);
  update->add_option("--etag", arguments.etag, "only when the job still has this etag");

  CLI::App* cancel = app->add_subcommand("cancel", "Stop a job: checkpoint, then end");
  AddJob(cancel, raw);
  cancel->add_flag("--now", arguments.now, "without a checkpoint");
  cancel->add_option("--reason", arguments.reason, "kept with the job");

  CLI::App* metrics = app->add_subcommand("metrics", "Loss and other values by step");
  AddJob(metrics, raw);
  metrics->add_flag("--csv", arguments.csv, "comma separated");
  metrics
      ->add_option("--series", arguments.series,
                   "loss, learning_rate, grad_norm, seconds, ...; default: all")
      ->delimiter(',')
      ->allow_extra_args(false);
}

void AddServerCommands(CLI::App* app) {
  app->add_subcommand("devices", "Devices of the server and who uses them");
  CLI::App* server = app->add_subcommand("server", "The server itself");
  server->require_subcommand(1);
  server->fallthrough();
  server->add_subcommand("info", "Version, roots, limits")->fallthrough();
  app->add_subcommand("version", "Version of this program");
}

// Everything that depends on more than one word.
Arguments Finish(const CLI::App& app, Raw raw) {
  Arguments arguments = std::move(raw.arguments);
  const CLI::App* command = app.get_subcommands().front();
  arguments.command = command->get_name();
  if (!command->get_subcommands().empty()) {
    absl::StrAppend(&arguments.command, " ", command->get_subcommands().front()->get_name());
  }
  if (!raw.job.empty()) arguments.jobs = {raw.job};
  if (command->get_name() == "logs" && command->count("--tail") > 0) arguments.tail = raw.tail;
  if (!raw.timeout.empty()) arguments.timeout = ToDuration(raw.timeout);
  static const std::map<std::string, Format> kFormats = {{"table", Format::kTable},
                                                         {"json", Format::kJson},
                                                         {"jsonl", Format::kJsonLines},
                                                         {"name", Format::kName}};
  arguments.format = kFormats.at(raw.format);
  arguments.colour = !raw.no_colour;
  // The shorthands come first, so that --set has the last word.
  std::vector<std::string>& overrides = arguments.source.overrides;
  if (!raw.vram_budget.empty())
    overrides.push_back(absl::StrCat("memory.vram_budget=", raw.vram_budget));
  if (!raw.blocks_to_swap.empty())
    overrides.push_back(absl::StrCat("memory.blocks_to_swap=", raw.blocks_to_swap));
  if (!raw.ring_size.empty()) overrides.push_back(absl::StrCat("memory.ring_size=", raw.ring_size));
  if (raw.h2d_only) overrides.push_back("memory.mode=h2d_only");
  if (raw.pinned) overrides.push_back("memory.pinned_memory=auto");
  overrides.insert(overrides.end(), raw.set.begin(), raw.set.end());
  return arguments;
}

// The first word that is no option, when no command is called so.
std::string UnknownCommand(CLI::App& app, const std::vector<std::string>& words) {
  const auto word = std::find_if(words.begin(), words.end(), [](const std::string& candidate) {
    return candidate.empty() || candidate[0] != '-';
  });
  if (word == words.end()) return "";
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    if (command->check_name(*word)) return "";
    names.push_back(command->get_name());
  }
  const std::string nearest = base::NearestName(*word, names);
  return absl::StrCat("no command '", *word, "'",
                      nearest.empty() ? "" : absl::StrCat(", did you mean '", nearest, "'?"));
}

}  // namespace

std::optional<Arguments> ParseArguments(const std::vector<std::string>& words, std::ostream& out,
                                        std::ostream& err, int* exit_code) {
  Raw raw;
  CLI::App app(
      "Trains models that do not fit on the GPU: submits jobs to blockswapd and shows what they "
      "do.",
      "blockswap");
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 ok, 1 error, 2 usage, 3 job failed, 4 job cancelled, 5 still running at the "
      "timeout, 6 not found,\n"
      "7 server unavailable, 8 denied, 9 conflict, 10 will not fit, 130 interrupted.");
  app.add_option("--server", raw.arguments.server,
                 "unix:/path of the server's socket (BLOCKSWAP_SERVER)");
  app.add_option("-o,--output", raw.format, "table, json, jsonl or name")
      ->check(CLI::IsMember({"table", "json", "jsonl", "name"}));
  app.add_flag("--no-color", raw.no_colour, "no colours (NO_COLOR)");
  AddFileCommands(&app, &raw);
  AddJobCommands(&app, &raw);
  AddServerCommands(&app);
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; }))
    command->fallthrough();

  std::vector<std::string> reversed(words.rbegin(), words.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    // CLI11 would only say that a command is missing.
    if (app.get_subcommands().empty() && error.get_exit_code() != 0) {
      const std::string unknown = UnknownCommand(app, words);
      if (!unknown.empty()) err << unknown << "\n";
    }
    const int code = app.exit(error, out, err);
    *exit_code = code == 0 ? kOk : kUsage;
    return std::nullopt;
  }
  return Finish(app, std::move(raw));
}

}  // namespace blockswap::cli
