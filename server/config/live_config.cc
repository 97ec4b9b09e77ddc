// SPDX-License-Identifier: Apache-2.0
#include "server/config/live_config.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "server/base/log.h"
#include "server/base/reason.h"

namespace blockswap::server {
namespace {

// Files that hold secrets may be named, secrets may not be shown.
bool IsSecret(const std::string& key) {
  const bool names_one = absl::StrContains(key, "secret") || absl::StrContains(key, "password") ||
                         absl::StrContains(key, "token");
  return names_one && !absl::EndsWith(key, "_file");
}

}  // namespace

absl::StatusOr<ReloadResult> LiveConfig::Reload() {
  base::MutexLock lock(mutex_);
  absl::StatusOr<ServerConfig> loaded = ReloadServerConfig(current_);
  if (!loaded.ok()) {
    return WithReason(absl::FailedPreconditionError(absl::StrCat("the settings stay as they are: ",
                                                                 loaded.status().message())),
                      "CONFIG_INVALID", {{"file", current_.file}});
  }
  ReloadResult result;
  const std::vector<SettingValue> before = ListSettings(current_), after = ListSettings(*loaded);
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i].value == after[i].value) continue;
    (before[i].reloadable ? result.changed : result.restart_needed).push_back(before[i].key);
  }
  apply_(*loaded);
  for (const std::string& key : result.changed) {
    BLOCKSWAP_RETURN_IF_ERROR(CopySetting(key, *loaded, current_));
    LogInfo("setting {} changed", key);
  }
  for (const std::string& key : result.restart_needed) {
    LogWarning("setting {} changed in {} and takes effect with a restart", key, current_.file);
  }
  return result;
}

std::vector<SettingValue> LiveConfig::Settings() const {
  base::MutexLock lock(mutex_);
  std::vector<SettingValue> settings = ListSettings(current_);
  for (SettingValue& setting : settings) {
    if (IsSecret(setting.key) && !setting.value.empty()) setting.value = "(masked)";
  }
  return settings;
}

std::string LiveConfig::file() const {
  base::MutexLock lock(mutex_);
  return current_.file;
}

}  // namespace blockswap::server
