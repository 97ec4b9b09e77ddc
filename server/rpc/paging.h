// SPDX-License-Identifier: Apache-2.0
// Pages of lists: how long, from where, and when a page has to end early.
#ifndef BLOCKSWAP_SERVER_RPC_PAGING_H_
#define BLOCKSWAP_SERVER_RPC_PAGING_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "offload/base/status_macros.h"
#include "server/rpc/status_conversion.h"
#include "server/rpc/tokens.h"

namespace blockswap::server {

inline constexpr int kDefaultPage = 50;
inline constexpr int kMaxPage = 1000;
inline constexpr int64_t kMaxMetricPoints = 10000;
// Clients take messages of at most 4 MiB unless told otherwise: a page that grows beyond this ends.
inline constexpr size_t kMaxPageBytes = size_t{3} << 20;

// InvalidArgument SPEC_INVALID: negative.
inline absl::StatusOr<int> PageSize(int requested) {
  if (requested < 0) return SpecInvalid({{"page_size", "must not be negative"}});
  return requested == 0 ? kDefaultPage : std::min(requested, kMaxPage);
}

// A page of a list that is short enough to be read whole. `add` appends one record to the response;
// returns the next page's token.
template <typename Record, typename Add>
absl::StatusOr<std::string> AddPage(const TokenMaker& tokens, const std::vector<Record>& records,
                                    int requested_size, const std::string& token,
                                    const std::string& scope, Add add) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const int size, PageSize(requested_size));
  BLOCKSWAP_ASSIGN_OR_RETURN(const int64_t first, tokens.ParsePageToken(token, scope));
  const auto count = static_cast<int64_t>(records.size());
  const int64_t end = std::min<int64_t>(count, first + size);
  for (int64_t i = first; i < end; ++i) add(records[static_cast<size_t>(i)]);
  return end < count ? tokens.PageToken(end, scope) : std::string();
}

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_PAGING_H_
