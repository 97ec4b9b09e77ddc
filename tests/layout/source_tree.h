// SPDX-License-Identifier: Apache-2.0
// The source files of this checkout, as text.
#ifndef BLOCKSWAP_TESTS_LAYOUT_SOURCE_TREE_H_
#define BLOCKSWAP_TESTS_LAYOUT_SOURCE_TREE_H_

#include <string>
#include <vector>

namespace blockswap::testing {

struct SourceFile {
  std::string path;  // from the root: "offload/plan/planner.cc"
  std::vector<std::string> lines;

  bool is_header() const { return path.size() > 2 && path.substr(path.size() - 2) == ".h"; }
  std::string directory() const { return path.substr(0, path.rfind('/')); }
};

struct Include {
  std::string path;  // between the quotes or angle brackets
  int line = 0;
};

// Every file below the project's directories whose name ends in one of `suffixes`, in order of
// path. Empty when BLOCKSWAP_SOURCE_DIR does not name the checkout: tests must expect some.
std::vector<SourceFile> ReadSources(const std::vector<std::string>& suffixes);

std::vector<Include> IncludesOf(const SourceFile& file);

// The line without its // comment and without what stands in string literals.
std::string CodeOf(const std::string& line);

// True for `path` in `directory` or below.
bool IsBelow(const std::string& path, const std::string& directory);

}  // namespace blockswap::testing

#endif  // BLOCKSWAP_TESTS_LAYOUT_SOURCE_TREE_H_
