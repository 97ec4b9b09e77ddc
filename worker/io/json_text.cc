// SPDX-License-Identifier: Apache-2.0
#include "worker/io/json_text.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace blockswap::worker {
namespace {

constexpr size_t kLongestQuotedName = 200;

// Deepest nesting of brackets outside strings. Counted before parsing: a tree of a million levels
// costs memory to build.
int NestingOf(absl::string_view text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return deepest;
}

}  // namespace

absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text, const std::string& what,
                                         int max_depth) {
  const int nesting = NestingOf(text);
  if (nesting > max_depth) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, " is nested ", nesting, " levels deep, at most ", max_depth, " are read"));
  }
  nlohmann::json json =
      nlohmann::json::parse(text.begin(), text.end(), /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded())
    return absl::InvalidArgumentError(absl::StrCat(what, " is not valid JSON"));
  return json;
}

std::string Quoted(absl::string_view name) {
  const bool cut = name.size() > kLongestQuotedName;
  return absl::StrCat("\"", absl::Utf8SafeCEscape(name.substr(0, kLongestQuotedName)),
                      cut ? "..." : "", "\"");
}

}  // namespace blockswap::worker
