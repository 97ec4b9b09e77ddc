// SPDX-License-Identifier: Apache-2.0
#include "server/config/server_config.h"

#include <toml++/toml.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "offload/base/nearest_name.h"
#include "offload/base/status_macros.h"
#include "proto/endpoint/default_endpoint.h"
#include "server/config/server_settings.h"

namespace blockswap::server {
namespace {

std::string FlagOf(const char* key) {
  return absl::StrCat("--", absl::StrReplaceAll(key, {{"_", "-"}}));
}

absl::Status Unknown(const std::string& what, const std::string& name,
                     std::vector<std::string> names) {
  const std::string nearest = base::NearestName(name, names);
  return absl::InvalidArgumentError(absl::StrCat("unknown ", what, " ", name,
                                                 nearest.empty() ? "" : ", did you mean ", nearest,
                                                 nearest.empty() ? "" : "?"));
}

std::string NodeText(const toml::node& node) {
  std::ostringstream text;
  if (const auto* words = node.as_array()) {
    for (const toml::node& word : *words) {
      text << (text.str().empty() ? "" : ",") << word.value<std::string>().value_or("");
    }
  } else if (const auto word = node.value<std::string>()) {
    text << *word;
  } else if (const auto number = node.as_integer()) {
    text << number->get();
  } else if (const auto* real = node.as_floating_point()) {
    text << real->get();
  } else if (const auto* flag = node.as_boolean()) {
    text << (flag->get() ? "true" : "false");
  }
  return text.str();
}

absl::Status ApplyFile(const std::string& path, const std::vector<Setting>& settings,
                       ServerConfig& config) {
  std::map<std::string, std::pair<std::string, int>> values;
  // The distribution builds toml++ to report syntax errors by throwing: this is the library's
  // boundary.
  try {
    const toml::table table = toml::parse_file(path);
    for (const auto& [key, node] : table) {
      values[std::string(key.str())] = {NodeText(node), static_cast<int>(node.source().begin.line)};
    }
  } catch (const toml::parse_error& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ":", error.source().begin.line, ": ", std::string(error.description())));
  }
  for (const auto& [key, value] : values) {
    const std::string where = absl::StrCat(path, ":", value.second, ": ");
    const Setting* found = nullptr;
    std::vector<std::string> names;
    for (const Setting& setting : settings) {
      names.push_back(setting.key);
      if (key == setting.key) found = &setting;
    }
    absl::Status set =
        found == nullptr ? Unknown("key", key, names) : found->set(config, value.first);
    if (!set.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, found == nullptr ? "" : absl::StrCat(key, ": "), set.message()));
    }
    config.origins[key] = SettingOrigin::kFile;
  }
  config.file = path;
  return absl::OkStatus();
}

// Flags in order; --config is returned apart because the file comes first.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> SplitFlags(
    const std::vector<std::string>& arguments, ServerConfig& config) {
  std::vector<std::pair<std::string, std::string>> flags;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--help" || argument == "-h") {
      config.print_help = true;
    } else if (argument == "--version") {
      config.print_version = true;
    } else if (argument.rfind("--", 0) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("unexpected argument ", argument, "; see --help"));
    } else if (const size_t equals = argument.find('='); equals != std::string::npos) {
      flags.emplace_back(argument.substr(0, equals), argument.substr(equals + 1));
    } else if (i + 1 < arguments.size()) {
      flags.emplace_back(argument, arguments[i + 1]);
      ++i;
    } else {
      return absl::InvalidArgumentError(absl::StrCat(argument, " needs a value"));
    }
  }
  return flags;
}

absl::Status ApplyFlag(const std::string& flag, const std::string& value,
                       const std::vector<Setting>& settings, ServerConfig& config) {
  std::vector<std::string> names = {"--config"};
  for (const Setting& setting : settings) {
    names.push_back(FlagOf(setting.key));
    if (flag != names.back()) continue;
    const absl::Status set = setting.set(config, value);
    config.origins[setting.key] = SettingOrigin::kFlag;
    return set.ok() ? set : absl::InvalidArgumentError(absl::StrCat(flag, ": ", set.message()));
  }
  return Unknown("flag", flag, names);
}

void FillDefaults(const std::string& program_path, ServerConfig& config) {
  if (config.state_dir.empty()) config.state_dir = proto::DefaultStateDirectory();
  std::error_code ignored;
  config.state_dir = std::filesystem::absolute(config.state_dir, ignored).string();
  if (config.socket.empty()) config.socket = proto::DefaultSocketPath(config.state_dir);
  if (config.models.empty()) config.models = absl::StrCat(config.state_dir, "/models");
  if (config.datasets.empty()) config.datasets = absl::StrCat(config.state_dir, "/datasets");
  if (config.outputs.empty()) config.outputs = absl::StrCat(config.state_dir, "/outputs");
  if (config.templates.empty()) config.templates = absl::StrCat(config.state_dir, "/templates");
  if (config.worker.empty()) {
    config.worker =
        (std::filesystem::path(program_path).parent_path() / "blockswap-worker").string();
  }
  for (std::string* path : {&config.socket, &config.models, &config.datasets, &config.outputs,
                            &config.worker, &config.templates}) {
    *path = std::filesystem::absolute(*path, ignored).lexically_normal().string();
  }
}

absl::Status CheckTogether(const ServerConfig& config) {
  if (config.confine_workers != "auto" && config.confine_workers != "required" &&
      config.confine_workers != "off") {
    return absl::InvalidArgumentError(absl::StrCat(
        "confine_workers: must be auto, required or off, is ", config.confine_workers));
  }
  if (config.tls_require_client_certificate && config.tls_client_ca.empty()) {
    return absl::InvalidArgumentError(
        "tls_require_client_certificate needs tls_client_ca, to verify them with");
  }
  if (config.listen.empty() || (!config.tls_certificate.empty() && !config.tls_key.empty())) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "listen ", config.listen,
      " needs tls_certificate and tls_key, also on a loopback address: "
      "tokens would cross it readable, and whoever has one runs jobs as its owner; every user and "
      "container of this machine reaches loopback. On one machine, use the Unix socket instead"));
}

}  // namespace

absl::StatusOr<ServerConfig> LoadServerConfig(const std::vector<std::string>& arguments,
                                              const std::string& program_path) {
  ServerConfig config;
  const std::vector<Setting> settings = ServerSettings();
  BLOCKSWAP_ASSIGN_OR_RETURN(const auto flags, SplitFlags(arguments, config));
  for (const auto& [flag, value] : flags) {
    if (flag == "--config") BLOCKSWAP_RETURN_IF_ERROR(ApplyFile(value, settings, config));
  }
  for (const auto& [flag, value] : flags) {
    if (flag != "--config") BLOCKSWAP_RETURN_IF_ERROR(ApplyFlag(flag, value, settings, config));
  }
  FillDefaults(program_path, config);
  BLOCKSWAP_RETURN_IF_ERROR(CheckTogether(config));
  config.arguments = arguments;
  config.program_path = program_path;
  return config;
}

absl::StatusOr<ServerConfig> ReloadServerConfig(const ServerConfig& config) {
  return LoadServerConfig(config.arguments, config.program_path);
}

std::vector<SettingValue> ListSettings(const ServerConfig& config) {
  std::vector<SettingValue> values;
  for (const Setting& setting : ServerSettings()) {
    const auto origin = config.origins.find(setting.key);
    values.push_back({setting.key, setting.get(config), setting.help,
                      origin == config.origins.end() ? SettingOrigin::kDefault : origin->second,
                      setting.reloadable});
  }
  return values;
}

absl::Status CopySetting(const std::string& key, const ServerConfig& from, ServerConfig& to) {
  for (const Setting& setting : ServerSettings()) {
    if (key != setting.key) continue;
    const auto origin = from.origins.find(key);
    to.origins[key] = origin == from.origins.end() ? SettingOrigin::kDefault : origin->second;
    return setting.set(to, setting.get(from));
  }
  return absl::InvalidArgumentError(absl::StrCat("no setting ", key));
}

std::string ServerConfigHelp() {
  std::string help =
      "blockswapd [--config FILE] [--flag VALUE]...\n\n"
      "Takes training jobs over gRPC and runs each in a worker process. Every flag is a key of the "
      "TOML file, too\n"
      "(with '_' for '-'); flags win.\n\n  --config           TOML file\n  --version          "
      "prints the version\n"
      "  --check-store      looks for damage in the state store, also beside a running server, and "
      "ends\n\n"
      "Exit codes: 0 stopped as asked; 1 cannot start; 2 a flag or the file is wrong; 3 the state "
      "store is damaged\nor of a newer version.\n\n";
  for (const Setting& setting : ServerSettings()) {
    std::string flag = FlagOf(setting.key);
    flag.resize(std::max<size_t>(flag.size() + 1, 21), ' ');
    absl::StrAppend(&help, "  ", flag, setting.help, "\n");
  }
  return help;
}

}  // namespace blockswap::server
