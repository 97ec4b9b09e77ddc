// SPDX-License-Identifier: Apache-2.0
// The settings in effect, and taking over what may change while the server runs.
#ifndef BLOCKSWAP_SERVER_CONFIG_LIVE_CONFIG_H_
#define BLOCKSWAP_SERVER_CONFIG_LIVE_CONFIG_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "offload/base/mutex.h"
#include "server/config/server_config.h"

namespace blockswap::server {

struct ReloadResult {
  std::vector<std::string> changed;         // keys in effect now
  std::vector<std::string> restart_needed;  // keys that differ in the file and wait for a restart
};

// Thread safety: safe.
class LiveConfig final {
 public:
  // `apply` takes over the reloadable settings of what it is given; called under the lock.
  LiveConfig(ServerConfig config, std::function<void(const ServerConfig&)> apply)
      : apply_(std::move(apply)), current_(std::move(config)) {}

  // Reads file and flags again. FailedPrecondition CONFIG_INVALID: nothing has changed.
  absl::StatusOr<ReloadResult> Reload();
  // Values as they are in effect; those of settings that name a secret are masked.
  std::vector<SettingValue> Settings() const;
  std::string file() const;

 private:
  const std::function<void(const ServerConfig&)> apply_;
  mutable base::Mutex mutex_;
  ServerConfig current_ ABSL_GUARDED_BY(mutex_);  // with the old values of what needs a restart
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_CONFIG_LIVE_CONFIG_H_
