// SPDX-License-Identifier: Apache-2.0
// The opaque tokens clients carry from call to call: page tokens and resume tokens.
#ifndef BLOCKSWAP_SERVER_RPC_TOKENS_H_
#define BLOCKSWAP_SERVER_RPC_TOKENS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace blockswap::server {

// Signed with the store's secret; `scope` is everything that must be the same on the next page
// (method, filter, order).
class TokenMaker final {
 public:
  TokenMaker(std::string epoch, std::string secret)
      : epoch_(std::move(epoch)), secret_(std::move(secret)) {}

  std::string PageToken(int64_t last_key, absl::string_view scope) const;
  // 0 for an empty token. InvalidArgument PAGE_TOKEN_INVALID: not one of ours, or for another
  // filter or order.
  absl::StatusOr<int64_t> ParsePageToken(const std::string& token, absl::string_view scope) const;
  // The same for a key that is a text of any kind; REQUIRES: `token` is not empty.
  std::string TextPageToken(absl::string_view last_key, absl::string_view scope) const;
  absl::StatusOr<std::string> ParseTextPageToken(const std::string& token,
                                                 absl::string_view scope) const;

  std::string ResumeToken(int64_t sequence, absl::string_view scope) const;
  // OutOfRange RESUME_TOKEN_EXPIRED: of another store. InvalidArgument: not one of ours, or for
  // another filter.
  absl::StatusOr<int64_t> ParseResumeToken(const std::string& token, absl::string_view scope) const;

 private:
  std::string Sign(absl::string_view kind, absl::string_view payload,
                   absl::string_view scope) const;

  std::string epoch_, secret_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_TOKENS_H_
