// SPDX-License-Identifier: Apache-2.0
#include "tests/layout/source_tree.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace blockswap::testing {
namespace {

constexpr const char* kDirectories[] = {"proto",  "offload", "worker", "server",
                                        "client", "tests",   "deploy"};

std::vector<std::string> ReadLines(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  std::string line;
  while (std::getline(file, line)) lines.push_back(line);
  return lines;
}

}  // namespace

std::vector<SourceFile> ReadSources(const std::vector<std::string>& suffixes) {
  std::vector<SourceFile> sources;
  const char* root = std::getenv("BLOCKSWAP_SOURCE_DIR");
  if (root == nullptr) return sources;
  for (const char* directory : kDirectories) {
    const std::filesystem::path top = std::filesystem::path(root) / directory;
    if (!std::filesystem::is_directory(top)) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(top)) {
      if (!entry.is_regular_file()) continue;
      const std::string name = entry.path().filename().string();
      const bool wanted =
          std::any_of(suffixes.begin(), suffixes.end(),
                      [&name](const std::string& suffix) { return absl::EndsWith(name, suffix); });
      if (!wanted) continue;
      sources.push_back(
          {std::filesystem::relative(entry.path(), root).string(), ReadLines(entry.path())});
    }
  }
  std::sort(sources.begin(), sources.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return sources;
}

std::vector<Include> IncludesOf(const SourceFile& file) {
  std::vector<Include> includes;
  for (size_t i = 0; i < file.lines.size(); ++i) {
    absl::string_view line = file.lines[i];
    if (!absl::ConsumePrefix(&line, "#include ")) continue;
    if (line.size() < 3) continue;
    const size_t end = line.find_first_of("\">", 1);
    if (end == absl::string_view::npos) continue;
    includes.push_back({std::string(line.substr(1, end - 1)), static_cast<int>(i) + 1});
  }
  return includes;
}

std::string CodeOf(const std::string& line) {
  std::string code;
  char quote = '\0';
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote != '\0') {
      if (c == '\\') ++i;
      if (c == quote) quote = '\0';
      continue;
    }
    if (c == '/' && i + 1 < line.size() && line[i + 1] == '/') break;
    // An apostrophe between digits separates thousands.
    const bool separator =
        c == '\'' && i > 0 && std::isxdigit(static_cast<unsigned char>(line[i - 1])) != 0;
    if (c == '"' || (c == '\'' && !separator)) {
      quote = c;
      continue;
    }
    code += c;
  }
  return code;
}

bool IsBelow(const std::string& path, const std::string& directory) {
  return path == directory || absl::StartsWith(path, absl::StrCat(directory, "/"));
}

}  // namespace blockswap::testing
