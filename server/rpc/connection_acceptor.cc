// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/connection_acceptor.h"

#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/base/log.h"
#include "server/base/thread_name.h"

namespace blockswap::server {
namespace {

// For workers, logs and the store, whatever comes over TCP; of a small limit half.
constexpr int kReserve = 128;
constexpr int kPauseMillis = 100;
constexpr int kPortTries = 10;

// Descriptors are given out lowest first: one this high is one of the last.
int FirstReserved() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return INT_MAX;
  const auto most = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, INT_MAX));
  return std::max(most - kReserve, most / 2);
}

bool IsUnix(int socket) {
  int domain = 0;
  socklen_t length = sizeof(domain);
  return ::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX;
}

absl::Status CannotListen(const std::string& where, int error) {
  return absl::FailedPreconditionError(
      absl::StrCat("cannot listen on ", where, ": ", std::strerror(error),
                   error == EADDRINUSE ? "; another process holds it" : ""));
}

int PortOf(const sockaddr_storage& address) {
  sockaddr_in in4{};
  sockaddr_in6 in6{};
  std::memcpy(&in4, &address, sizeof(in4));
  std::memcpy(&in6, &address, sizeof(in6));
  return ntohs(address.ss_family == AF_INET6 ? in6.sin6_port : in4.sin_port);
}

void SetPort(int port, sockaddr_storage* address) {
  const auto value = htons(static_cast<uint16_t>(port));
  // At one place in both.
  sockaddr_in in4{};
  std::memcpy(&in4, address, sizeof(in4));
  in4.sin_port = value;
  std::memcpy(address, &in4, sizeof(in4));
}
static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));

const sockaddr* Generic(const sockaddr_storage& address) {
  const void* plain = &address;
  return static_cast<const sockaddr*>(plain);
}

// Invalid with errno set when it cannot be had.
UniqueFd Listen(const sockaddr_storage& address, socklen_t length) {
  UniqueFd socket(
      ::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, /*protocol=*/0));
  const int on = 1;
  if (!socket.valid()) return socket;
  if (address.ss_family != AF_UNIX) {
    // A port in TIME_WAIT of an earlier server is free; one that is listened on is not.
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  if (address.ss_family == AF_INET6) {
    // [::] is every address, also those of IPv4, whatever the system's default.
    const int only = 0;
    ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only));
  }
  if (::bind(socket.get(), Generic(address), length) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    const int error = errno;
    socket.Reset();
    errno = error;
  }
  return socket;
}

// glibc names 127.0.0.1 twice where /etc/hosts has it and ::1 as localhost.
bool IsRepeated(const addrinfo* addresses, const addrinfo* which) {
  for (const addrinfo* each = addresses; each != which; each = each->ai_next) {
    if (each->ai_addrlen == which->ai_addrlen &&
        std::memcmp(each->ai_addr, which->ai_addr, which->ai_addrlen) == 0)
      return true;
  }
  return false;
}

// 0, or why not one of them can be had; one that is taken fails all.
int ListenOnAll(const addrinfo* addresses, ListeningSockets* on) {
  int error = 0;
  for (const addrinfo* each = addresses; each != nullptr; each = each->ai_next) {
    if (IsRepeated(addresses, each)) continue;
    sockaddr_storage storage{};
    std::memcpy(&storage, each->ai_addr, each->ai_addrlen);
    SetPort(on->port, &storage);
    UniqueFd socket = Listen(storage, each->ai_addrlen);
    if (!socket.valid()) {
      error = errno;
      if (error == EADDRINUSE) return error;
      continue;  // a machine without IPv6 still has the name's other address
    }
    socklen_t length = sizeof(storage);
    void* plain = &storage;
    ::getsockname(socket.get(), static_cast<sockaddr*>(plain), &length);
    on->port = PortOf(storage);
    on->sockets.push_back(std::move(socket));
  }
  return on->sockets.empty() ? error : 0;
}

}  // namespace

absl::StatusOr<ListeningSockets> ListenOnUnix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  sockaddr_storage storage{};
  std::memcpy(&storage, &address, sizeof(address));
  ListeningSockets on;
  on.sockets.push_back(Listen(storage, sizeof(address)));
  if (!on.sockets[0].valid()) return CannotListen(path, errno);
  return on;
}

absl::StatusOr<ListeningSockets> ListenOnTcp(const std::string& address) {
  const size_t colon = address.rfind(':');
  absl::string_view host = absl::string_view(address).substr(0, colon);
  absl::ConsumePrefix(&host, "[");
  absl::ConsumeSuffix(&host, "]");
  ListeningSockets on;
  if (!absl::SimpleAtoi(address.substr(colon + 1), &on.port)) {
    return absl::InvalidArgumentError(absl::StrCat("no port in ", address));
  }
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(std::string(host).c_str(), nullptr, &hints, &found);
  if (failed != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot listen on ", address, ": ", ::gai_strerror(failed)));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  const int wanted_port = on.port;
  int error = 0;
  // A port that the system chose for one address may be taken at the next.
  for (int tries = wanted_port == 0 ? kPortTries : 1; tries > 0; --tries) {
    on = {{}, wanted_port};
    error = ListenOnAll(found, &on);
    if (error != EADDRINUSE) break;
  }
  if (error != 0) return CannotListen(address, error);
  return on;
}

absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> ConnectionAcceptor::Start(
    std::vector<Listener> listeners) {
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC));
  if (!wake.valid()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot accept connections: no eventfd: ", std::strerror(errno),
                     "; raise the limit of open files"));
  }
  return std::unique_ptr<ConnectionAcceptor>(
      new ConnectionAcceptor(std::move(listeners), std::move(wake)));
}

ConnectionAcceptor::ConnectionAcceptor(std::vector<Listener> listeners, UniqueFd wake)
    : listeners_(std::move(listeners)), wake_(std::move(wake)) {
  thread_ = std::thread([this] {
    NameThisThread("rpc-accept");
    Run();
  });
}

ConnectionAcceptor::~ConnectionAcceptor() {
  const uint64_t one = 1;
  while (::write(wake_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
  }
  thread_.join();
}

void ConnectionAcceptor::Run() {
  std::vector<pollfd> waits = {{wake_.get(), POLLIN, 0}};
  std::vector<std::pair<const UniqueFd*, const Take*>> sockets;
  for (const Listener& listener : listeners_) {
    for (const UniqueFd& socket : listener.on.sockets) {
      waits.push_back({socket.get(), POLLIN, 0});
      sockets.emplace_back(&socket, &listener.take);
    }
  }
  bool is_pausing = false;
  while (true) {
    // In a pause those who wait stay in the kernel's queue.
    const auto count = is_pausing ? nfds_t{1} : static_cast<nfds_t>(waits.size());
    if (::poll(waits.data(), count, is_pausing ? kPauseMillis : -1) < 0 && errno != EINTR) return;
    if (waits[0].revents != 0) return;
    is_pausing = false;
    for (size_t i = 0; i < sockets.size(); ++i) {
      if (!Accept(*sockets[i].first, *sockets[i].second)) is_pausing = true;
    }
  }
}

bool ConnectionAcceptor::Accept(const UniqueFd& socket, const Take& take) {
  const int connection = ::accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  const bool has_none =
      connection < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM);
  if (connection < 0 && !has_none) return true;
  // On a Unix socket are workers and the server's own people: those may have the last.
  const int first_reserved = IsUnix(socket.get()) ? INT_MAX : FirstReserved();
  const bool is_refused = has_none || connection >= first_reserved;
  if (is_refused && !is_refusing_) {
    LogWarning("too many connections: {}", has_none ? "no descriptor is left, new ones wait"
                                                    : "the last descriptors are kept for jobs, new "
                                                      "ones over TCP are closed");
    is_refusing_ = true;
  }
  // Not at the first that closes: in a flood that would be said again and again.
  if (connection >= 0 && connection < FirstReserved() / 2) is_refusing_ = false;
  if (!is_refused) {
    take(connection);
  } else if (connection >= 0) {
    ::close(connection);
  }
  return !has_none;
}

}  // namespace blockswap::server
