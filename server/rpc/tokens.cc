// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/tokens.h"

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "offload/base/status_macros.h"
#include "server/base/random_text.h"
#include "server/base/reason.h"

namespace blockswap::server {
namespace {

// Enough of the MAC to make forging pointless, short enough for a command line.
constexpr size_t kMacBytes = 16;

absl::Status BadToken(const char* field, const char* reason) {
  return WithReason(
      absl::InvalidArgumentError(absl::StrCat(field,
                                              ": is not a token of this server for the same filter "
                                              "and order; start again without it")),
      reason, {{"field", field}});
}

}  // namespace

std::string TokenMaker::Sign(absl::string_view kind, absl::string_view payload,
                             absl::string_view scope) const {
  return HmacSha256(secret_, absl::StrCat(kind, "\n", payload, "\n", scope)).substr(0, kMacBytes);
}

std::string TokenMaker::PageToken(int64_t last_key, absl::string_view scope) const {
  return TextPageToken(absl::StrCat(last_key), scope);
}

absl::StatusOr<int64_t> TokenMaker::ParsePageToken(const std::string& token,
                                                   absl::string_view scope) const {
  if (token.empty()) return 0;
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::string text, ParseTextPageToken(token, scope));
  int64_t key = 0;
  if (!absl::SimpleAtoi(text, &key)) return BadToken("page_token", "PAGE_TOKEN_INVALID");
  return key;
}

std::string TokenMaker::TextPageToken(absl::string_view last_key, absl::string_view scope) const {
  return absl::WebSafeBase64Escape(
      absl::StrCat(last_key, ".", ToHex(Sign("page", last_key, scope))));
}

absl::StatusOr<std::string> TokenMaker::ParseTextPageToken(const std::string& token,
                                                           absl::string_view scope) const {
  std::string text;
  if (!absl::WebSafeBase64Unescape(token, &text)) {
    return BadToken("page_token", "PAGE_TOKEN_INVALID");
  }
  // The key may have dots, the MAC has none.
  const size_t dot = text.rfind('.');
  if (dot == std::string::npos) return BadToken("page_token", "PAGE_TOKEN_INVALID");
  const std::string key = text.substr(0, dot);
  if (!EqualsInConstantTime(text.substr(dot + 1), ToHex(Sign("page", key, scope)))) {
    return BadToken("page_token", "PAGE_TOKEN_INVALID");
  }
  return key;
}

std::string TokenMaker::ResumeToken(int64_t sequence, absl::string_view scope) const {
  const std::string payload = absl::StrCat(epoch_, ".", sequence);
  return absl::StrCat(payload, ".", ToHex(Sign("resume", payload, scope)));
}

absl::StatusOr<int64_t> TokenMaker::ParseResumeToken(const std::string& token,
                                                     absl::string_view scope) const {
  const std::vector<std::string> parts = absl::StrSplit(token, '.');
  int64_t sequence = 0;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[1], &sequence) || sequence < 0) {
    return BadToken("resume_token", "RESUME_TOKEN_INVALID");
  }
  // Looked at before the signature: a new store has a new secret, too, and an honest client
  // deserves the honest answer.
  if (parts[0] != epoch_) {
    return WithReason(
        absl::OutOfRangeError(
            "the resume token is of another state store (restored or made anew); list "
            "the jobs and watch without a token"),
        "RESUME_TOKEN_EXPIRED", {{"epoch", epoch_}});
  }
  const std::string payload = absl::StrCat(parts[0], ".", parts[1]);
  if (!EqualsInConstantTime(parts[2], ToHex(Sign("resume", payload, scope)))) {
    return BadToken("resume_token", "RESUME_TOKEN_INVALID");
  }
  return sequence;
}

}  // namespace blockswap::server
