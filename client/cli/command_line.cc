// SPDX-License-Identifier: Apache-2.0
#include "client/cli/command_line.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace blockswap::cli {
namespace {

std::string CheckDuration(const std::string& text) {
  absl::Duration duration;
  double seconds = 0;
  const bool good = (absl::ParseDuration(text, &duration) && duration >= absl::ZeroDuration()) ||
                    (absl::SimpleAtod(text, &seconds) && seconds >= 0);
  return good ? "" : absl::StrCat("not a duration: ", text, "; write 90, 30s, 5m or 1h30m");
}

void AddJobFile(CLI::App* command, RawArguments* raw) {
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

void AddJob(CLI::App* command, RawArguments* raw) {
  command->add_option("JOB", raw->job, "job id, or the beginning of one")->required();
}

void AddFileCommands(CLI::App* app, RawArguments* raw) {
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

// What shows jobs or waits for them.
void AddJobViews(CLI::App* app, RawArguments* raw) {
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
}

// What changes a job, ends it or makes another of it.
void AddJobChanges(CLI::App* app, RawArguments* raw) {
  Arguments& arguments = raw->arguments;
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

  AddJob(app->add_subcommand("suspend", "Checkpoint a job and give its device to others"), raw);
  AddJob(app->add_subcommand("resume", "Put a suspended job back in line"), raw);
  AddJob(app->add_subcommand("checkpoint", "Ask a running job for a checkpoint now"), raw);
  AddJob(app->add_subcommand("sample", "Ask a running job for samples now"), raw);

  CLI::App* retry = app->add_subcommand("retry", "A new job with the spec of one that has ended");
  AddJob(retry, raw);
  retry->add_option("--id", arguments.id, "id of the new job; default: made by the server");
  retry->add_option("--from", arguments.checkpoint,
                    "step of a checkpoint, latest (the default), or none: from the beginning");
  retry->add_option("--set", raw->set, "override, as in --set memory.vram_budget=8GiB")
      ->allow_extra_args(false);
  retry->add_flag("-q,--quiet", arguments.quiet, "print the new job's id and nothing else");

  CLI::App* remove = app->add_subcommand("delete", "Remove a job that has ended from the server");
  AddJob(remove, raw);
  remove->add_flag("--outputs", arguments.outputs, "its adapters, checkpoints and samples as well");
  remove->add_flag("-y,--yes", arguments.yes, "do not ask");
  remove->add_option("--etag", arguments.etag, "only when the job still has this etag");
}

void AddMetrics(CLI::App* app, RawArguments* raw) {
  Arguments& arguments = raw->arguments;
  CLI::App* metrics = app->add_subcommand("metrics", "Loss and other values by step");
  AddJob(metrics, raw);
  metrics->add_flag("--csv", arguments.csv, "comma separated");
  metrics
      ->add_option("--series", arguments.series,
                   "loss, learning_rate, grad_norm, seconds, ...; default: all")
      ->delimiter(',')
      ->allow_extra_args(false);
}

// A command with commands of its own; without one of them it does what it did before it had any.
CLI::App* AddGroup(CLI::App* app, const char* name, const char* summary) {
  CLI::App* group = app->add_subcommand(name, summary);
  group->require_subcommand(0, 1);
  return group;
}

void AddHistoryCommands(CLI::App* app, RawArguments* raw) {
  AddJob(app->add_subcommand("attempts", "The runs of a job, each with how it ended"), raw);
  AddJob(app->add_subcommand("events", "What happened to a job"), raw);
  CLI::App* checkpoints = app->add_subcommand("checkpoints", "Checkpoints of a job");
  checkpoints->require_subcommand(1);
  AddJob(checkpoints->add_subcommand("list", "All of a job, newest first"), raw);
  CLI::App* get = checkpoints->add_subcommand("get", "One of them");
  AddJob(get, raw);
  get->add_option("STEP", raw->checkpoint, "its step")->required()->check(CLI::NonNegativeNumber);
  CLI::App* remove = checkpoints->add_subcommand("delete", "Remove one of them");
  AddJob(remove, raw);
  remove->add_option("STEP", raw->checkpoint, "its step")
      ->required()
      ->check(CLI::NonNegativeNumber);
  remove->add_flag("-y,--yes", raw->arguments.yes, "do not ask");
}

void AddQueueCommands(CLI::App* app, RawArguments* raw) {
  CLI::App* queue = AddGroup(app, "queue", "Whether jobs start, and how many wait");
  queue->add_subcommand("show", "The same as without a command");
  CLI::App* pause = queue->add_subcommand("pause", "Start no more jobs; what runs goes on");
  pause->add_option("--reason", raw->arguments.reason, "shown with every job that waits");
  queue->add_subcommand("resume", "Start jobs again");
  AddGroup(app, "templates", "Job templates that the server offers")
      ->add_subcommand("list", "The same as without a command");
}

void AddOwnCommands(CLI::App* app, RawArguments* raw) {
  CLI::App* top = app->add_subcommand("top", "Devices and running jobs, refreshed until Ctrl-C");
  top->add_option("--every", raw->every, "time between two views; default 2s")
      ->check(CheckDuration);
  top->add_flag("--once", raw->arguments.once, "one view, then end");
  app->add_subcommand("completion", "Shell completions: source <(blockswap completion bash)")
      ->add_option("SHELL", raw->shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  app->add_subcommand("manual", "The manual page, as troff")->group("");
  app->add_subcommand("version", "Version of this program");
}

void AddTokenCommands(CLI::App* app, RawArguments* raw) {
  Arguments& arguments = raw->arguments;
  CLI::App* token = app->add_subcommand("token", "What lets programs and people in over TCP");
  token->require_subcommand(1);
  CLI::App* create = token->add_subcommand("create", "Make a token and show it, this once");
  create->add_option("--role", arguments.role, "what it may do: viewer, submitter, operator, admin")
      ->required()
      ->check(CLI::IsMember({"viewer", "submitter", "operator", "admin"}));
  create->add_option("--tenant", arguments.tenant,
                     "whose jobs it makes and sees; default: the server's default tenant");
  create->add_option("--name", arguments.token_name,
                     "whose it is, as in ci; default: the role and the time");
  create
      ->add_option("--expires", raw->expires, "after this it is refused, as in 720h; default never")
      ->check(CheckDuration);
  create->add_option("--out", arguments.token_output,
                     "new file of mode 0600 to write it to, instead of standard output");
  token->add_subcommand("list", "All tokens, without what lets one in");
  CLI::App* revoke = token->add_subcommand("revoke", "Refuse a token from now on");
  revoke->add_option("TOKEN", arguments.token, "its number or name, as in token list")->required();
  revoke->add_flag("-y,--yes", arguments.yes, "do not ask");
}

void AddContextCommands(CLI::App* app, RawArguments* raw) {
  Arguments& arguments = raw->arguments;
  CLI::App* context = app->add_subcommand("context", "Servers by name, with what they are shown");
  context->require_subcommand(1);
  context->add_subcommand("list", "All of them; * marks the one in use");
  context->add_subcommand("use", "Talk to this server from now on; default: the local one")
      ->add_option("NAME", arguments.context, "of a context, or default")
      ->required();
  CLI::App* add = context->add_subcommand(
      "add", "Keep what --server, --token-file and --tls-... say under a name");
  add->add_option("NAME", arguments.context, "letters, digits, '.', '_' and '-'")->required();
  add->add_flag("--replace", arguments.replace, "also when there is one of this name");
  context->add_subcommand("remove", "Forget a context; its files stay")
      ->add_option("NAME", arguments.context, "of a context")
      ->required();
  CLI::App* config = app->add_subcommand("config", "The settings of this program");
  config->require_subcommand(1);
  config->add_subcommand("view", "The settings as a command would use them")
      ->add_flag("--origin", arguments.origin, "with where each value comes from");
}

void AddConnectionOptions(CLI::App* app, RawArguments* raw) {
  Endpoint& endpoint = raw->arguments.endpoint;
  app->add_option("--context", endpoint.context,
                  "context to take the server from, for this command (BLOCKSWAP_CONTEXT)");
  app->add_option("--server", endpoint.server,
                  "unix:/path of the server's socket, or host:port for TLS (BLOCKSWAP_SERVER)");
  app->add_option("--token-file", endpoint.token_file,
                  "file with the token, - is standard input (BLOCKSWAP_TOKEN_FILE)");
  app->add_option("--tls-ca", endpoint.tls_ca,
                  "PEM that the server's certificate is verified with; default: the system's "
                  "(BLOCKSWAP_TLS_CA)");
  app->add_option("--tls-cert", endpoint.tls_cert,
                  "PEM of a client certificate (BLOCKSWAP_TLS_CERT)");
  app->add_option("--tls-key", endpoint.tls_key, "its private key (BLOCKSWAP_TLS_KEY)");
}

void AddServerCommands(CLI::App* app, RawArguments* raw) {
  CLI::App* devices = AddGroup(app, "devices", "Devices of the server and who uses them");
  devices->add_subcommand("list", "The same as without a command");
  CLI::App* drain = devices->add_subcommand("drain", "Start no more jobs on a device");
  drain->add_option("DEVICE", raw->device, "as in gpu0")->required();
  drain->add_option("--reason", raw->arguments.reason, "shown with the device");
  devices->add_subcommand("undrain", "Give a device back to the queue")
      ->add_option("DEVICE", raw->device, "as in gpu0")
      ->required();
  CLI::App* server = app->add_subcommand("server", "The server itself");
  server->require_subcommand(1);
  server->add_subcommand("info", "Version, roots, limits");
  server->add_subcommand("health", "Exit code 0 when the server accepts jobs, 7 when not");
  server->add_subcommand("check", "Look through the server's database");
  server->add_subcommand("backup", "Copy the server's database while it is in use");
  server->add_subcommand("config", "Every setting with where its value comes from");
  server->add_subcommand("reload", "Read the settings again");
}

void FallThrough(CLI::App* app) {
  for (CLI::App* command : app->get_subcommands([](CLI::App*) { return true; })) {
    command->fallthrough();
    FallThrough(command);
  }
}

}  // namespace

std::unique_ptr<CLI::App> MakeCommandLine(RawArguments* raw) {
  auto app = std::make_unique<CLI::App>(
      "Trains models that do not fit on the GPU: submits jobs to blockswapd and shows what they "
      "do.",
      "blockswap");
  app->require_subcommand(1);
  app->footer(
      "Exit codes: 0 ok, 1 error, 2 usage, 3 job failed, 4 job cancelled, 5 still running at the "
      "timeout, 6 not found,\n"
      "7 server unavailable, 8 denied, 9 conflict, 10 will not fit, 130 interrupted.");
  AddConnectionOptions(app.get(), raw);
  app->add_option("-o,--output", raw->format, "table, wide, json, jsonl, yaml or name")
      ->check(CLI::IsMember({"table", "wide", "json", "jsonl", "yaml", "name"}));
  app->add_option("--columns", raw->columns, "columns of a table, as in --columns job,state,loss");
  app->add_flag("--no-color", raw->no_colour, "no colours (NO_COLOR)");
  AddFileCommands(app.get(), raw);
  AddJobViews(app.get(), raw);
  AddJobChanges(app.get(), raw);
  AddMetrics(app.get(), raw);
  AddHistoryCommands(app.get(), raw);
  AddServerCommands(app.get(), raw);
  AddQueueCommands(app.get(), raw);
  AddTokenCommands(app.get(), raw);
  AddContextCommands(app.get(), raw);
  AddOwnCommands(app.get(), raw);
  FallThrough(app.get());
  return app;
}

std::vector<const CLI::App*> CommandsOf(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
}

}  // namespace blockswap::cli
