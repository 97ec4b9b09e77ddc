// SPDX-License-Identifier: Apache-2.0
// YAML (and so JSON) as a plain tree with line numbers, read under limits that hold for untrusted
// text.
#ifndef BLOCKSWAP_PROTO_JOB_FILE_YAML_TREE_H_
#define BLOCKSWAP_PROTO_JOB_FILE_YAML_TREE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace blockswap::proto {

struct YamlEntry;

struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  int line = 0;      // from 1
  std::string text;  // of a scalar
  bool quoted = false;
  std::vector<YamlNode> items;     // of a list
  std::vector<YamlEntry> entries;  // of a map, in the order of the file; keys may repeat
};

struct YamlEntry {
  std::string key;
  int line = 0;
  YamlNode value;
};

inline constexpr int kMaxYamlBytes = 256 * 1024;
inline constexpr int kMaxYamlDepth = 16;

// Parses one document. InvalidArgument with line and column on anything that is not YAML, on more
// than kMaxYamlBytes or kMaxYamlDepth, on text that is not UTF-8, and on anchors, aliases, tags,
// keys that are not text, and a second document: a job file has no use for them, and aliases make
// small files huge.
absl::StatusOr<YamlNode> ParseYamlTree(const std::string& text);

}  // namespace blockswap::proto

#endif  // BLOCKSWAP_PROTO_JOB_FILE_YAML_TREE_H_
