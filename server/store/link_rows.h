// SPDX-License-Identifier: Apache-2.0
// Keeps what the link test of each device measured, so that it runs once and not at every start.
#ifndef BLOCKSWAP_SERVER_STORE_LINK_ROWS_H_
#define BLOCKSWAP_SERVER_STORE_LINK_ROWS_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/device/device_link.h"
#include "server/store/database.h"

namespace blockswap::server {

absl::Status PutLink(Database& database, const std::string& device_key, const MeasuredLink& link);
absl::StatusOr<std::optional<MeasuredLink>> GetLink(Database& database,
                                                    const std::string& device_key);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_STORE_LINK_ROWS_H_
