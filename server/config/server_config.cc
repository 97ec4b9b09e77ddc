// SPDX-License-Identifier: Apache-2.0
#include "server/config/server_config.h"

#include <toml++/toml.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "offload/base/byte_size.h"
#include "offload/base/nearest_name.h"
#include "offload/base/status_macros.h"
#include "proto/endpoint/default_endpoint.h"
#include "proto/job_file/job_file.h"

namespace blockswap::server {
namespace {

// One setting: `key` in the file, --key with dashes as a flag. Text in, so that both share one
// parser.
struct Setting {
  const char* key;
  const char* help;
  std::function<absl::Status(ServerConfig&, const std::string&)> set;
};

Setting Text(const char* key, std::string ServerConfig::*field, const char* help) {
  return {key, help, [field](ServerConfig& config, const std::string& value) {
            if (value.empty()) return absl::InvalidArgumentError("must not be empty");
            config.*field = value;
            return absl::OkStatus();
          }};
}

Setting Bytes(const char* key, int64_t ServerConfig::*field, const char* help) {
  return {key, help, [field](ServerConfig& config, const std::string& value) -> absl::Status {
            BLOCKSWAP_ASSIGN_OR_RETURN(config.*field, base::ParseByteSize(value));
            return absl::OkStatus();
          }};
}

Setting Count(const char* key, int64_t ServerConfig::*field, const char* help) {
  return {
      key, help, [field](ServerConfig& config, const std::string& value) {
        int64_t number = 0;
        if (!absl::SimpleAtoi(value, &number) || number < 1) {
          return absl::InvalidArgumentError(absl::StrCat("must be a number from 1, is ", value));
        }
        config.*field = number;
        return absl::OkStatus();
      }};
}

Setting Seconds(const char* key, double ServerConfig::*field, const char* help) {
  return {key, help, [field](ServerConfig& config, const std::string& value) {
            constexpr double kYear = 31536000;
            double number = 0;
            if (!absl::SimpleAtod(value, &number) || !(number >= 0) || number > kYear) {
              return absl::InvalidArgumentError(
                  absl::StrCat("must be seconds from 0 to a year, is ", value));
            }
            config.*field = number;
            return absl::OkStatus();
          }};
}

Setting Switch(const char* key, bool ServerConfig::*field, const char* help) {
  return {key, help, [field](ServerConfig& config, const std::string& value) {
            if (value != "true" && value != "false") {
              return absl::InvalidArgumentError(absl::StrCat("must be true or false, is ", value));
            }
            config.*field = value == "true";
            return absl::OkStatus();
          }};
}

Setting Names(const char* key, std::vector<std::string> ServerConfig::*field, const char* help) {
  return {key, help, [field](ServerConfig& config, const std::string& value) {
            config.*field = absl::StrSplit(value, ',', absl::SkipEmpty());
            return absl::OkStatus();
          }};
}

std::vector<Setting> Settings() {
  return {
      Text("state_dir", &ServerConfig::state_dir, "database, locks and defaults of the roots"),
      Text("socket", &ServerConfig::socket, "Unix socket that clients connect to"),
      Text("http", &ServerConfig::http,
           "loopback address of /metrics, /healthz, /readyz; off: none"),
      Text("models", &ServerConfig::models, "root of weights; default <state-dir>/models"),
      Text("datasets", &ServerConfig::datasets, "root of datasets; default <state-dir>/datasets"),
      Text("outputs", &ServerConfig::outputs, "root of outputs; default <state-dir>/outputs"),
      Text("worker", &ServerConfig::worker,
           "the blockswap-worker program; default: beside blockswapd"),
      Bytes("host_budget", &ServerConfig::host_budget_bytes,
            "memory of the host device; default: half of what is available at the start"),
      Bytes("master_cache", &ServerConfig::master_cache_bytes,
            "memory for base weights kept between jobs; default: a quarter of what is available at "
            "the start"),
      Switch("measure_links", &ServerConfig::measure_links,
             "measure the bus of each device once, at the first start"),
      Switch("offer_host", &ServerConfig::offer_host, "offer the host device beside GPUs, too"),
      Count("max_queued_jobs", &ServerConfig::max_queued_jobs, "unfinished jobs that are accepted"),
      Seconds("stop_grace", &ServerConfig::stop_grace_seconds,
              "seconds for a last checkpoint when a job or the server stops"),
      Seconds("terminate_grace", &ServerConfig::terminate_grace_seconds,
              "seconds between SIGTERM and SIGKILL of a worker"),
      Seconds("retry_backoff", &ServerConfig::retry_backoff_seconds,
              "seconds before the first restart; doubles with each"),
      Seconds("attach_timeout", &ServerConfig::attach_timeout_seconds,
              "seconds a worker has to connect after its start"),
      Seconds("heartbeat_timeout", &ServerConfig::heartbeat_timeout_seconds,
              "seconds of silence after which a worker is ended"),
      Seconds("progress_timeout", &ServerConfig::progress_timeout_seconds,
              "seconds without a step (at least 20 median steps) after which a worker is ended"),
      Seconds("bookmark_interval", &ServerConfig::bookmark_seconds,
              "seconds after which a silent watch gets a bookmark"),
      Names("pass_environment", &ServerConfig::pass_environment,
            "names of environment variables that workers get, separated by commas"),
      Text("log_level", &ServerConfig::log_level, "trace, debug, info, warning, error, critical"),
  };
}

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
  }
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
  if (config.worker.empty()) {
    config.worker =
        (std::filesystem::path(program_path).parent_path() / "blockswap-worker").string();
  }
  for (std::string* path :
       {&config.socket, &config.models, &config.datasets, &config.outputs, &config.worker}) {
    *path = std::filesystem::absolute(*path, ignored).lexically_normal().string();
  }
}

}  // namespace

absl::StatusOr<ServerConfig> LoadServerConfig(const std::vector<std::string>& arguments,
                                              const std::string& program_path) {
  ServerConfig config;
  const std::vector<Setting> settings = Settings();
  BLOCKSWAP_ASSIGN_OR_RETURN(const auto flags, SplitFlags(arguments, config));
  for (const auto& [flag, value] : flags) {
    if (flag == "--config") BLOCKSWAP_RETURN_IF_ERROR(ApplyFile(value, settings, config));
  }
  for (const auto& [flag, value] : flags) {
    if (flag != "--config") BLOCKSWAP_RETURN_IF_ERROR(ApplyFlag(flag, value, settings, config));
  }
  FillDefaults(program_path, config);
  return config;
}

std::string ServerConfigHelp() {
  std::string help =
      "blockswapd [--config FILE] [--flag VALUE]...\n\n"
      "Takes training jobs over gRPC and runs each in a worker process. Every flag is a key of the "
      "TOML file, too\n"
      "(with '_' for '-'); flags win.\n\n  --config           TOML file\n  --version          "
      "prints the version\n";
  for (const Setting& setting : Settings()) {
    std::string flag = FlagOf(setting.key);
    flag.resize(std::max<size_t>(flag.size() + 1, 21), ' ');
    absl::StrAppend(&help, "  ", flag, setting.help, "\n");
  }
  return help;
}

}  // namespace blockswap::server
