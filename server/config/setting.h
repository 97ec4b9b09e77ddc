// SPDX-License-Identifier: Apache-2.0
// One setting as text: what flags and files say, how it is checked, and what the server answers.
#ifndef BLOCKSWAP_SERVER_CONFIG_SETTING_H_
#define BLOCKSWAP_SERVER_CONFIG_SETTING_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/config/server_config.h"

namespace blockswap::server {

// `key` in the file, --key with dashes as a flag. Text in, so that both share one parser.
struct Setting {
  const char* key;
  const char* help;
  std::function<absl::Status(ServerConfig&, const std::string&)> set;  // InvalidArgument
  std::function<std::string(const ServerConfig&)> get;
  bool reloadable = false;
};

namespace setting {

// Read where it is used: a new value takes effect with the next use.
Setting Reloadable(Setting setting);

Setting Text(const char* key, std::string ServerConfig::*field, const char* help);
Setting Bytes(const char* key, int64_t ServerConfig::*field, const char* help);
Setting Count(const char* key, int64_t ServerConfig::*field, const char* help,
              int64_t largest = INT64_MAX);
Setting Seconds(const char* key, double ServerConfig::*field, const char* help);
Setting Days(const char* key, double ServerConfig::*field, const char* help);
Setting Rate(const char* key, double ServerConfig::*field, const char* help);
Setting Level(const char* key, std::string ServerConfig::*field, const char* help);
Setting Switch(const char* key, bool ServerConfig::*field, const char* help);
Setting Names(const char* key, std::vector<std::string> ServerConfig::*field, const char* help);

}  // namespace setting
}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_CONFIG_SETTING_H_
