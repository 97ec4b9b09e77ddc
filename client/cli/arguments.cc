// SPDX-License-Identifier: Apache-2.0
#include "client/cli/arguments.h"

#include <algorithm>
#include <map>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/command_line.h"
#include "client/cli/exit_code.h"
#include "offload/base/nearest_name.h"

namespace blockswap::cli {
namespace {

absl::Duration ToDuration(const std::string& text) {
  absl::Duration duration;
  if (absl::ParseDuration(text, &duration)) return duration;
  double seconds = 0;
  return absl::SimpleAtod(text, &seconds) ? absl::Seconds(seconds) : absl::InfiniteDuration();
}

// Everything that depends on more than one word.
Arguments Finish(const CLI::App& app, RawArguments raw) {
  Arguments arguments = std::move(raw.arguments);
  const CLI::App* command = app.get_subcommands().front();
  arguments.command = command->get_name();
  if (!command->get_subcommands().empty()) {
    absl::StrAppend(&arguments.command, " ", command->get_subcommands().front()->get_name());
  } else if (!command->get_subcommands([](const CLI::App*) { return true; }).empty()) {
    absl::StrAppend(&arguments.command, command->get_name() == "queue" ? " show" : " list");
  }
  if (!raw.job.empty()) arguments.jobs = {raw.job};
  if (command->get_name() == "logs" && command->count("--tail") > 0) arguments.tail = raw.tail;
  if (!raw.checkpoint.empty()) arguments.checkpoint = raw.checkpoint;
  arguments.device = raw.device;
  arguments.shell = raw.shell;
  arguments.columns = absl::StrSplit(raw.columns, ',', absl::SkipEmpty());
  if (!raw.every.empty()) arguments.every = ToDuration(raw.every);
  if (!raw.expires.empty()) arguments.expires = ToDuration(raw.expires);
  if (!raw.timeout.empty()) arguments.timeout = ToDuration(raw.timeout);
  static const std::map<std::string, Format> kFormats = {
      {"table", Format::kTable},     {"wide", Format::kWide}, {"json", Format::kJson},
      {"jsonl", Format::kJsonLines}, {"yaml", Format::kYaml}, {"name", Format::kName}};
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

// The first word that is no option, when no command is called so; of a command with commands of its
// own, the second. Else the first option that no command on the way has.
std::string UnknownWord(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* at = &app;
  const auto suggest = [](const std::string& what, const std::string& word,
                          const std::vector<std::string>& names) {
    const std::string nearest = base::NearestName(word, names);
    return absl::StrCat("no ", what, " '", word, "'",
                        nearest.empty() ? "" : absl::StrCat(", did you mean '", nearest, "'?"));
  };
  for (const std::string& word : words) {
    const std::vector<const CLI::App*> commands =
        at->get_subcommands([](const CLI::App*) { return true; });
    if (word.rfind("--", 0) == 0 && word.size() > 2) {
      const std::string name = word.substr(0, word.find('='));
      std::vector<std::string> names;
      bool known = false;
      for (const CLI::App* level = at; level != nullptr; level = level->get_parent()) {
        for (const CLI::Option* option : level->get_options()) {
          known = known || option->check_name(name);
          for (const std::string& each : option->get_lnames()) names.push_back("--" + each);
        }
      }
      if (!known && commands.empty()) return suggest("option", name, names);
    }
    if (word.empty() || word[0] == '-' || commands.empty()) continue;
    const auto found = std::find_if(commands.begin(), commands.end(), [&](const CLI::App* command) {
      return command->check_name(word);
    });
    if (found != commands.end()) {
      at = *found;
      continue;
    }
    std::vector<std::string> names;
    for (const CLI::App* command : commands) names.push_back(command->get_name());
    return suggest("command", word, names);
  }
  return "";
}

}  // namespace

std::optional<Arguments> ParseArguments(const std::vector<std::string>& words, std::ostream& out,
                                        std::ostream& err, int* exit_code) {
  RawArguments raw;
  const std::unique_ptr<CLI::App> app = MakeCommandLine(&raw);
  std::vector<std::string> reversed(words.rbegin(), words.rend());
  try {
    app->parse(reversed);
  } catch (const CLI::ParseError& error) {
    // CLI11 would only say that a command is missing.
    if (error.get_exit_code() != 0) {
      const std::string unknown = UnknownWord(*app, words);
      if (!unknown.empty()) err << unknown << "\n";
    }
    const int code = app->exit(error, out, err);
    *exit_code = code == 0 ? kOk : kUsage;
    return std::nullopt;
  }
  return Finish(*app, std::move(raw));
}

}  // namespace blockswap::cli
