// SPDX-License-Identifier: Apache-2.0
// A directory of a test's own that is gone when the test is.
#ifndef BLOCKSWAP_TESTS_WORKER_DATA_TEMP_DIRECTORY_H_
#define BLOCKSWAP_TESTS_WORKER_DATA_TEMP_DIRECTORY_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace blockswap::worker {

class TempDirectory {
 public:
  TempDirectory();
  ~TempDirectory();
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string Path(const std::string& name) const { return path_ + "/" + name; }
  // Makes the directories on the way; returns the full path.
  std::string Write(const std::string& name, absl::string_view content) const;
  std::string Make(const std::string& directory) const;
  // Everything in a directory by name, hidden files too, sorted.
  std::vector<std::string> Names(const std::string& directory = "") const;

 private:
  std::string path_;
};

std::string ReadFile(const std::string& path);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_TESTS_WORKER_DATA_TEMP_DIRECTORY_H_
