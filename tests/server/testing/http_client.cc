// SPDX-License-Identifier: Apache-2.0
#include "tests/server/testing/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace blockswap::server {
namespace {

constexpr int kPatienceMillis = 60000;

UniqueFd Connect(int port) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  sockaddr generic = {};
  std::memcpy(&generic, &address, sizeof(address));
  if (::connect(socket.get(), &generic, sizeof(address)) != 0) socket.Reset();
  return socket;
}

void Send(int socket, int port, const std::string& method, const std::string& target,
          const std::string& headers) {
  std::string request = absl::StrCat(method, " ", target, " HTTP/1.1\r\n");
  if (!absl::StrContains(headers, "Host:")) {
    absl::StrAppend(&request, "Host: 127.0.0.1:", port, "\r\n");
  }
  absl::StrAppend(&request, headers, "\r\n");
  if (::send(socket, request.data(), request.size(), MSG_NOSIGNAL) < 0) return;
}

// False at the end of the answer.
bool Receive(int socket, std::string* buffer) {
  pollfd wait = {socket, POLLIN, 0};
  if (::poll(&wait, 1, kPatienceMillis) != 1) return false;
  char chunk[16384];
  const ssize_t got = ::recv(socket, chunk, sizeof(chunk), 0);
  if (got <= 0) return false;
  buffer->append(chunk, static_cast<size_t>(got));
  return true;
}

}  // namespace

HttpReply HttpFetch(int port, const std::string& target, const std::string& method,
                    const std::string& headers) {
  const UniqueFd socket = Connect(port);
  HttpReply reply;
  if (!socket.valid()) return reply;
  Send(socket.get(), port, method, target, headers);
  std::string text;
  while (Receive(socket.get(), &text)) {
  }
  const size_t end = text.find("\r\n\r\n");
  if (end == std::string::npos) return reply;
  reply.body = text.substr(end + 4);
  const std::vector<std::string> lines = absl::StrSplit(text.substr(0, end), "\r\n");
  reply.status = std::atoi(lines[0].c_str() + lines[0].find(' ') + 1);
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::vector<std::string> both = absl::StrSplit(lines[i], absl::MaxSplits(": ", 1));
    if (both.size() == 2) reply.headers[absl::AsciiStrToLower(both[0])] = both[1];
  }
  return reply;
}

HttpReader::HttpReader(int port, const std::string& target, const std::string& headers)
    : socket_(Connect(port)) {
  if (socket_.valid()) Send(socket_.get(), port, "GET", target, headers);
}

std::optional<std::string> HttpReader::ReadBlock() {
  while (true) {
    // The head ends its lines with "\r\n", events with "\n".
    const size_t head = buffer_.find("\r\n\r\n");
    const size_t end = absl::StartsWith(buffer_, "HTTP/") ? head : buffer_.find("\n\n");
    if (end != std::string::npos) {
      const size_t length = end + (end == head ? 4 : 2);
      std::string block = buffer_.substr(0, length);
      buffer_.erase(0, length);
      return block;
    }
    if (!socket_.valid() || !Receive(socket_.get(), &buffer_)) return std::nullopt;
  }
}

std::optional<std::string> HttpReader::ReadUntil(const std::string& text) {
  while (true) {
    std::optional<std::string> block = ReadBlock();
    if (!block.has_value() || absl::StrContains(*block, text)) return block;
  }
}

}  // namespace blockswap::server
