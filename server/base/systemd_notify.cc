// SPDX-License-Identifier: Apache-2.0
#include "server/base/systemd_notify.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/unique_fd.h"

namespace blockswap::server {

SystemdNotifier::SystemdNotifier(std::string socket_path) : socket_path_(std::move(socket_path)) {}

SystemdNotifier SystemdNotifier::FromEnvironment() {
  const char* path = std::getenv("NOTIFY_SOCKET");
  SystemdNotifier notifier(path == nullptr ? "" : path);
  ::unsetenv("NOTIFY_SOCKET");
  return notifier;
}

absl::Status SystemdNotifier::Notify(const std::string& state) const {
  if (socket_path_.empty()) return absl::OkStatus();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_path_.size() >= sizeof(address.sun_path) ||
      (socket_path_[0] != '/' && socket_path_[0] != '@')) {
    return absl::InvalidArgumentError(
        absl::StrCat("NOTIFY_SOCKET is no socket's address: ", socket_path_));
  }
  std::memcpy(address.sun_path, socket_path_.data(), socket_path_.size());
  // An abstract address begins with a zero byte.
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';
  const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_path_.size());
  if (!socket.valid() || ::sendto(socket.get(), state.data(), state.size(), MSG_NOSIGNAL,
                                  reinterpret_cast<const sockaddr*>(&address), length) < 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot notify systemd at ", socket_path_, ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace blockswap::server
