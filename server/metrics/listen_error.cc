// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/listen_error.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/base/unique_fd.h"

namespace blockswap::server {

std::string WhyCannotListen(const std::string& address) {
  constexpr int kLargestPort = 65535;
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port) ||
      port < 0 || port > kLargestPort) {
    return absl::StrCat("its port is no number from 0 to ", kLargestPort);
  }
  const bool is_v6 = address[0] == '[';
  const UniqueFd socket(::socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return std::strerror(errno);
  const int one = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  v4.sin_family = AF_INET;
  v6.sin6_family = AF_INET6;
  v4.sin_port = v6.sin6_port = htons(static_cast<uint16_t>(port));
  const std::string host =
      is_v6 ? address.substr(1, address.find(']') - 1) : address.substr(0, colon);
  const int parsed = is_v6 ? ::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr)
                           : ::inet_pton(AF_INET, host.c_str(), &v4.sin_addr);
  if (parsed != 1) return absl::StrCat(host, " is no numeric address");
  const int bound = is_v6 ? ::bind(socket.get(), reinterpret_cast<sockaddr*>(&v6), sizeof(v6))
                          : ::bind(socket.get(), reinterpret_cast<sockaddr*>(&v4), sizeof(v4));
  if (bound == 0 && ::listen(socket.get(), 1) == 0) return "it could not be opened";
  return std::strerror(errno);
}

}  // namespace blockswap::server
