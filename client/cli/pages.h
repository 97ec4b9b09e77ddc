// SPDX-License-Identifier: Apache-2.0
// All pages of a list as one message.
#ifndef BLOCKSWAP_CLIENT_CLI_PAGES_H_
#define BLOCKSWAP_CLIENT_CLI_PAGES_H_

#include <functional>
#include <type_traits>
#include <utility>

#include "absl/status/statusor.h"
#include "client/cpp/server_client.h"
#include "google/protobuf/repeated_field.h"

namespace blockswap::cli {

// The most that the server puts on a page: fewest calls for items that are small.
inline constexpr int kLargestPage = 1000;

// Calls `list` with `request` and the token of each page for the next, and returns the items of all
// of them; `items` names the repeated field. Items that are not `wanted` (null: all are) are left
// out, and a page without any that is ends the reading: lists come newest first.
template <typename Request, typename Response, typename Item>
absl::StatusOr<Response> ReadPages(
    client::ServerClient& client,
    absl::StatusOr<Response> (client::ServerClient::*list)(const Request&),
    google::protobuf::RepeatedPtrField<Item>* (Response::*items)(), Request request,
    const std::function<bool(const std::type_identity_t<Item>&)>& wanted = nullptr) {
  Response all;
  do {
    absl::StatusOr<Response> page = (client.*list)(request);
    if (!page.ok()) return page.status();
    bool any = false;
    for (Item& item : *((*page).*items)()) {
      if (wanted != nullptr && !wanted(item)) continue;
      any = true;
      *(all.*items)()->Add() = std::move(item);
    }
    if (wanted != nullptr && !any) break;
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  return all;
}

}  // namespace blockswap::cli

#endif  // BLOCKSWAP_CLIENT_CLI_PAGES_H_
