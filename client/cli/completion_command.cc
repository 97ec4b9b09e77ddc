// SPDX-License-Identifier: Apache-2.0
// completion and manual: made from the commands themselves, so that they never lag behind.
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/cli/command_line.h"
#include "client/cli/commands.h"

namespace blockswap::cli {
namespace {

// One command as the scripts see it.
struct Entry {
  std::string path;  // "checkpoints list"; empty: blockswap itself
  std::string summary;
  std::vector<std::string> words;  // commands below it and its options
  bool takes_job = false, takes_file = false;
};

std::vector<std::string> OptionsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

bool Takes(const CLI::App& app, const char* positional) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional() && option->get_name(true, false) == positional) return true;
  }
  return false;
}

void Collect(const CLI::App& app, const std::string& path, const std::vector<std::string>& above,
             std::vector<Entry>* entries) {
  Entry entry{path, app.get_description(), OptionsOf(app), Takes(app, "JOB"), Takes(app, "FILE")};
  std::vector<std::string> inherited = entry.words;
  inherited.insert(inherited.end(), above.begin(), above.end());
  entry.words = inherited;
  for (const CLI::App* command : CommandsOf(app)) entry.words.push_back(command->get_name());
  entries->push_back(std::move(entry));
  for (const CLI::App* command : CommandsOf(app)) {
    Collect(*command,
            path.empty() ? command->get_name() : absl::StrCat(path, " ", command->get_name()),
            inherited, entries);
  }
}

std::string Case(const Entry& entry, const std::string& job_ids) {
  return absl::StrCat("    '", entry.path, "') words='", absl::StrJoin(entry.words, " "), "'",
                      entry.takes_job ? absl::StrCat("; words=\"$words ", job_ids, "\"") : "",
                      entry.takes_file ? "; files=1" : "", " ;;\n");
}

// `set_path` leaves the commands that were typed so far in $path.
std::string Cases(const std::vector<Entry>& entries) {
  std::string text = "  case \"$path\" in\n";
  for (const Entry& entry : entries) {
    absl::StrAppend(&text, Case(entry, "$(blockswap list --all -o name 2>/dev/null)"));
  }
  return text + "  esac\n";
}

std::string Bash(const std::vector<Entry>& entries) {
  return absl::StrCat(
      "_blockswap() {\n"
      "  local current=\"${COMP_WORDS[COMP_CWORD]}\" path='' words='' files='' word\n"
      "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
      "    case \"$word\" in -*) continue ;; esac\n"
      "    case ' ",
      absl::StrJoin(entries, " | ",
                    [](std::string* out, const Entry& entry) { absl::StrAppend(out, entry.path); }),
      " ' in *\" ${path:+$path }$word \"*) path=\"${path:+$path }$word\" ;; esac\n"
      "  done\n",
      Cases(entries),
      "  COMPREPLY=($(compgen -W \"$words\" ${files:+-f} -- \"$current\"))\n"
      "}\n"
      "complete -F _blockswap blockswap\n");
}

std::string Zsh(const std::vector<Entry>& entries) {
  return absl::StrCat("#compdef blockswap\nautoload -U +X bashcompinit && bashcompinit\n",
                      Bash(entries));
}

std::string FishQuoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

std::string Fish(const std::vector<Entry>& entries) {
  std::string text = "complete -c blockswap -f\n";
  for (const Entry& entry : entries) {
    if (entry.path.empty()) continue;
    const size_t space = entry.path.rfind(' ');
    const std::string name = space == std::string::npos ? entry.path : entry.path.substr(space + 1);
    const std::string when =
        space == std::string::npos
            ? "__fish_use_subcommand"
            : absl::StrCat("__fish_seen_subcommand_from ", entry.path.substr(0, space));
    absl::StrAppend(&text, "complete -c blockswap -n ", FishQuoted(when), " -a ", name, " -d ",
                    FishQuoted(entry.summary), "\n");
    const std::string here = FishQuoted(absl::StrCat("__fish_seen_subcommand_from ", name));
    if (entry.takes_job) {
      absl::StrAppend(&text, "complete -c blockswap -n ", here,
                      " -a '(blockswap list --all -o name 2>/dev/null)'\n");
    }
    if (entry.takes_file) absl::StrAppend(&text, "complete -c blockswap -n ", here, " -F\n");
    for (const std::string& word : entry.words) {
      if (word.rfind("--", 0) == 0)
        absl::StrAppend(&text, "complete -c blockswap -n ", here, " -l ", word.substr(2), "\n");
    }
  }
  return text;
}

std::string Troff(const std::string& text) {
  std::string escaped = absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}});
  return !escaped.empty() && (escaped[0] == '.' || escaped[0] == '\'') ? "\\&" + escaped : escaped;
}

void ManualOptions(const CLI::App& app, std::string* text) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    absl::StrAppend(text, ".TP\n.B ", Troff(option->get_name(option->get_positional(), true)), "\n",
                    Troff(option->get_description()), "\n");
  }
}

void ManualCommand(const CLI::App& app, const std::string& path, std::string* text) {
  absl::StrAppend(text, ".SS ", Troff(path), "\n", Troff(app.get_description()), "\n");
  ManualOptions(app, text);
  for (const CLI::App* command : CommandsOf(app))
    ManualCommand(*command, absl::StrCat(path, " ", command->get_name()), text);
}

std::string Manual(const CLI::App& app) {
  std::string text = absl::StrCat(".TH BLOCKSWAP 1 \"\" \"blockswap ", BLOCKSWAP_VERSION,
                                  "\"\n.SH NAME\nblockswap \\- submit training jobs to blockswapd "
                                  "and see what they do\n.SH SYNOPSIS\n.B blockswap\n"
                                  ".I command\n[options]\n.SH DESCRIPTION\n",
                                  Troff(app.get_description()), "\n.SH OPTIONS\n");
  ManualOptions(app, &text);
  absl::StrAppend(&text, ".SH COMMANDS\n");
  for (const CLI::App* command : CommandsOf(app))
    ManualCommand(*command, command->get_name(), &text);
  absl::StrAppend(&text, ".SH \"EXIT STATUS\"\n", Troff(app.get_footer()), "\n");
  return text;
}

}  // namespace

ExitCode RunCompletion(Session& session, const Arguments& arguments) {
  RawArguments raw;
  const std::unique_ptr<CLI::App> app = MakeCommandLine(&raw);
  std::vector<Entry> entries;
  Collect(*app, "", {}, &entries);
  session.out() << (arguments.shell == "fish"  ? Fish(entries)
                    : arguments.shell == "zsh" ? Zsh(entries)
                                               : Bash(entries));
  return kOk;
}

ExitCode RunManual(Session& session, const Arguments&) {
  RawArguments raw;
  session.out() << Manual(*MakeCommandLine(&raw));
  return kOk;
}

}  // namespace blockswap::cli
