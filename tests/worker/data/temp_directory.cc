// SPDX-License-Identifier: Apache-2.0
#include "tests/worker/data/temp_directory.h"

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace blockswap::worker {

namespace fs = std::filesystem;

TempDirectory::TempDirectory() {
  std::string pattern = (fs::temp_directory_path() / "blockswap-test-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) abort();
  path_ = pattern;
}

TempDirectory::~TempDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string TempDirectory::Write(const std::string& name, absl::string_view content) const {
  const fs::path path = fs::path(path_) / name;
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary)
      .write(content.data(), static_cast<std::streamsize>(content.size()));
  return path.string();
}

std::string TempDirectory::Make(const std::string& directory) const {
  fs::create_directories(fs::path(path_) / directory);
  return (fs::path(path_) / directory).string();
}

std::vector<std::string> TempDirectory::Names(const std::string& directory) const {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(fs::path(path_) / directory)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace blockswap::worker
