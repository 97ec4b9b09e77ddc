// SPDX-License-Identifier: Apache-2.0
// The tables of the state store and their migrations.
#ifndef BLOCKSWAP_SERVER_STORE_SCHEMA_H_
#define BLOCKSWAP_SERVER_STORE_SCHEMA_H_

#include <string>

#include "absl/status/status.h"
#include "server/store/database.h"

namespace blockswap::server {

// Of the table meta: events up to this sequence may be missing.
inline constexpr char kEventsFloorKey[] = "events_floor";

// Reason of the error of a file that this version cannot read; no call ever answers it.
inline constexpr char kStoreTooNew[] = "STORE_TOO_NEW";

int CurrentSchemaVersion();

// Brings `database` to the current version, one transaction a step. An existing older file is first
// copied to `<path>.v<N>.bak`; a start that is cut off anywhere in between can be repeated.
// FailedPrecondition STORE_TOO_NEW with instructions when the file is from a newer blockswapd.
absl::Status MigrateSchema(Database& database, const std::string& path);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_STORE_SCHEMA_H_
