// SPDX-License-Identifier: Apache-2.0
// A directory below /tmp that goes with the object: short enough for Unix sockets in it.
#ifndef BLOCKSWAP_TESTS_SERVER_TESTING_TEMPORARY_DIRECTORY_H_
#define BLOCKSWAP_TESTS_SERVER_TESTING_TEMPORARY_DIRECTORY_H_

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace blockswap::server {

class TemporaryDirectory final {
 public:
  TemporaryDirectory() {
    std::string pattern = "/tmp/blockswap-test-XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_TESTS_SERVER_TESTING_TEMPORARY_DIRECTORY_H_
