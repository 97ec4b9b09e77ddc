// SPDX-License-Identifier: Apache-2.0
// Tells systemd that the service is ready, alive or stopping, when systemd asked to be told.
#ifndef BLOCKSWAP_SERVER_BASE_SYSTEMD_NOTIFY_H_
#define BLOCKSWAP_SERVER_BASE_SYSTEMD_NOTIFY_H_

#include <string>

#include "absl/status/status.h"

namespace blockswap::server {

// Sends sd_notify's datagrams. Thread safety: safe after construction.
class SystemdNotifier final {
 public:
  // `socket_path` as in NOTIFY_SOCKET: absolute, or abstract with a leading '@'. Empty: nobody
  // listens, and Notify does nothing.
  explicit SystemdNotifier(std::string socket_path);
  // From NOTIFY_SOCKET, which is removed: programs we start have nothing to tell.
  static SystemdNotifier FromEnvironment();

  // `state`: "READY=1", "WATCHDOG=1", "STOPPING=1".
  absl::Status Notify(const std::string& state) const;

 private:
  std::string socket_path_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_BASE_SYSTEMD_NOTIFY_H_
