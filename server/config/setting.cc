// SPDX-License-Identifier: Apache-2.0
#include "server/config/setting.h"

#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "offload/base/byte_size.h"
#include "offload/base/status_macros.h"

namespace blockswap::server::setting {
namespace {

// From 0 to `most`; `range` says so to people.
Setting Number(const char* key, double ServerConfig::*field, const char* help, double most,
               const char* range) {
  return {key, help,
          [field, most, range](ServerConfig& config, const std::string& value) {
            double number = 0;
            if (!absl::SimpleAtod(value, &number) || !(number >= 0) || number > most) {
              return absl::InvalidArgumentError(absl::StrCat("must be ", range, ", is ", value));
            }
            config.*field = number;
            return absl::OkStatus();
          },
          [field](const ServerConfig& config) { return absl::StrCat(config.*field); }};
}

}  // namespace

Setting Reloadable(Setting setting) {
  setting.reloadable = true;
  return setting;
}

Setting Text(const char* key, std::string ServerConfig::*field, const char* help) {
  return {key, help,
          [field](ServerConfig& config, const std::string& value) {
            if (value.empty()) return absl::InvalidArgumentError("must not be empty");
            config.*field = value;
            return absl::OkStatus();
          },
          [field](const ServerConfig& config) { return config.*field; }};
}

Setting Bytes(const char* key, int64_t ServerConfig::*field, const char* help) {
  return {key, help,
          [field](ServerConfig& config, const std::string& value) -> absl::Status {
            BLOCKSWAP_ASSIGN_OR_RETURN(config.*field, base::ParseByteSize(value));
            return absl::OkStatus();
          },
          [field](const ServerConfig& config) { return absl::StrCat(config.*field); }};
}

Setting Count(const char* key, int64_t ServerConfig::*field, const char* help, int64_t largest) {
  return {key, help,
          [field, largest](ServerConfig& config, const std::string& value) {
            int64_t number = 0;
            if (!absl::SimpleAtoi(value, &number) || number < 1 || number > largest) {
              return absl::InvalidArgumentError(absl::StrCat(
                  "must be a number from 1",
                  largest < INT64_MAX ? absl::StrCat(" to ", largest) : "", ", is ", value));
            }
            config.*field = number;
            return absl::OkStatus();
          },
          [field](const ServerConfig& config) { return absl::StrCat(config.*field); }};
}

Setting Seconds(const char* key, double ServerConfig::*field, const char* help) {
  constexpr double kYear = 31536000;
  return Number(key, field, help, kYear, "seconds from 0 to a year");
}

Setting Days(const char* key, double ServerConfig::*field, const char* help) {
  constexpr double kCentury = 36525;
  return Number(key, field, help, kCentury, "days from 0 to a century");
}

Setting Rate(const char* key, double ServerConfig::*field, const char* help) {
  constexpr double kMost = 1e6;
  return Number(key, field, help, kMost, "a number from 0 to 1000000");
}

Setting Level(const char* key, std::string ServerConfig::*field, const char* help) {
  return {key, help,
          [field](ServerConfig& config, const std::string& value) {
            for (const char* level :
                 {"trace", "debug", "info", "warning", "error", "critical", "off"}) {
              if (value != level) continue;
              config.*field = value;
              return absl::OkStatus();
            }
            return absl::InvalidArgumentError(absl::StrCat(
                "must be trace, debug, info, warning, error, critical or off, is ", value));
          },
          [field](const ServerConfig& config) { return config.*field; }};
}

Setting Switch(const char* key, bool ServerConfig::*field, const char* help) {
  return {key, help,
          [field](ServerConfig& config, const std::string& value) {
            if (value != "true" && value != "false") {
              return absl::InvalidArgumentError(absl::StrCat("must be true or false, is ", value));
            }
            config.*field = value == "true";
            return absl::OkStatus();
          },
          [field](const ServerConfig& config) {
            return std::string(config.*field ? "true" : "false");
          }};
}

Setting Names(const char* key, std::vector<std::string> ServerConfig::*field, const char* help) {
  return {key, help,
          [field](ServerConfig& config, const std::string& value) {
            config.*field = absl::StrSplit(value, ',', absl::SkipEmpty());
            return absl::OkStatus();
          },
          [field](const ServerConfig& config) { return absl::StrJoin(config.*field, ","); }};
}

}  // namespace blockswap::server::setting
