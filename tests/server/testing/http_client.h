// SPDX-License-Identifier: Apache-2.0
// A client of the daemon's HTTP port as bytes on a socket: sees what a browser sees, sends what a
// browser would not.
#ifndef BLOCKSWAP_TESTS_SERVER_TESTING_HTTP_CLIENT_H_
#define BLOCKSWAP_TESTS_SERVER_TESTING_HTTP_CLIENT_H_

#include <map>
#include <optional>
#include <string>

#include "server/base/unique_fd.h"

namespace blockswap::server {

struct HttpReply {
  int status = 0;                              // 0: no answer
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

// `headers` are lines with their ends. A Host header is sent unless they have one.
HttpReply HttpFetch(int port, const std::string& target, const std::string& method = "GET",
                    const std::string& headers = "");

// One open answer, read piece by piece with a deadline.
class HttpReader final {
 public:
  HttpReader(int port, const std::string& target, const std::string& headers = "");

  // Up to and with the next empty line: first the head, then one server-sent event a call. Nothing
  // at the end of the answer, or after a minute.
  std::optional<std::string> ReadBlock();
  // The next event that has `text` in it.
  std::optional<std::string> ReadUntil(const std::string& text);
  void Close() { socket_.Reset(); }

 private:
  UniqueFd socket_;
  std::string buffer_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_TESTS_SERVER_TESTING_HTTP_CLIENT_H_
