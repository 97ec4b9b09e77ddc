// SPDX-License-Identifier: Apache-2.0
#include "offload/base/proc_file.h"

#include <fstream>
#include <sstream>

namespace blockswap::base {

std::optional<int64_t> ReadProcBytes(const std::string& path, absl::string_view key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.size() <= key.size() || line[key.size()] != ':') continue;
    if (line.compare(0, key.size(), key.data(), key.size()) != 0) continue;
    std::istringstream fields(line.substr(key.size() + 1));
    int64_t kibibytes = 0;
    if (!(fields >> kibibytes)) return std::nullopt;
    return kibibytes * 1024;
  }
  return std::nullopt;
}

std::optional<std::string> ReadFirstWord(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  if (!(file >> word)) return std::nullopt;
  return word;
}

}  // namespace blockswap::base
