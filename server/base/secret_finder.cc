// SPDX-License-Identifier: Apache-2.0
#include "server/base/secret_finder.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace blockswap::server {
namespace {

bool IsLetterOrDigit(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); }

bool IsBase64Url(char c) { return IsLetterOrDigit(c) || c == '-' || c == '_'; }

bool IsCredentialCharacter(char c) {
  return IsBase64Url(c) || c == '.' || c == '+' || c == '/' || c == '=' || c == '~';
}

struct Mark {
  absl::string_view prefix;
  size_t least;  // characters behind it that make a secret
  bool is_certain;
  bool (*belongs)(char);
};
// Tokens of Hugging Face are letters and digits only: "hf_cache/models" is a directory.
constexpr Mark kMarks[] = {{"bst_", 16, true, IsBase64Url},
                           {"hf_", 16, true, IsLetterOrDigit},
                           {"bearer ", 8, false, IsCredentialCharacter}};

// Most text is none: its characters cost one comparison each.
bool MayBeginMark(char c) { return c == 'b' || c == 'B' || c == 'h' || c == ':'; }

std::optional<FoundSecret> PasswordBehindScheme(absl::string_view text, size_t begin) {
  constexpr absl::string_view kScheme = "://";
  if (!absl::StartsWith(text.substr(begin), kScheme)) return std::nullopt;
  const absl::string_view rest = text.substr(begin + kScheme.size());
  const absl::string_view authority = rest.substr(0, rest.find_first_of("/ \t\n\"'"));
  const size_t at = authority.rfind('@');
  const size_t colon = authority.find(':');
  if (at == absl::string_view::npos || colon >= at || at == colon + 1) return std::nullopt;
  return FoundSecret{begin + kScheme.size() + colon + 1, at - colon - 1, true};
}

std::optional<FoundSecret> SecretAt(absl::string_view text, size_t begin) {
  for (const Mark& mark : kMarks) {
    const absl::string_view from = text.substr(begin);
    const bool begins = mark.is_certain ? absl::StartsWith(from, mark.prefix)
                                        : absl::StartsWithIgnoreCase(from, mark.prefix);
    if (!begins) continue;
    const absl::string_view rest = from.substr(mark.prefix.size());
    const auto length = static_cast<size_t>(
        std::find_if_not(rest.begin(), rest.end(), mark.belongs) - rest.begin());
    if (length < mark.least) continue;
    return FoundSecret{begin + mark.prefix.size(), length, mark.is_certain};
  }
  return PasswordBehindScheme(text, begin);
}

}  // namespace

std::optional<FoundSecret> FindSecret(absl::string_view text, size_t from) {
  for (size_t i = from; i < text.size(); ++i) {
    if (!MayBeginMark(text[i])) continue;
    const std::optional<FoundSecret> found = SecretAt(text, i);
    if (found.has_value()) return found;
  }
  return std::nullopt;
}

bool HoldsSecret(absl::string_view text) {
  size_t from = 0;
  while (true) {
    const std::optional<FoundSecret> found = FindSecret(text, from);
    if (!found.has_value()) return false;
    if (found->is_certain) return true;
    from = found->begin;
  }
}

}  // namespace blockswap::server
