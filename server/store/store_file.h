// SPDX-License-Identifier: Apache-2.0
// The state store as a file: made whole or not at all, copied, checked without a server.
#ifndef BLOCKSWAP_SERVER_STORE_STORE_FILE_H_
#define BLOCKSWAP_SERVER_STORE_STORE_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store/database.h"
#include "server/store/job_store.h"

namespace blockswap::server {

std::string StoreFileOf(const std::string& state_directory);

// Makes an empty store where there is none: under another name, renamed when it is complete and
// synced, so that an empty file is never a store that was being made. DataLoss: the file is empty,
// or it is missing while its write-ahead log is there; SQLite would begin anew over both.
absl::Status PrepareStoreFile(const std::string& path);

// Writes a copy of what `database` has now, complete, synced and under its name, or nothing. A file
// of that name is replaced.
absl::Status CopyStore(Database& database, const std::string& path);

// Reads the whole file and looks for damage; a server may be using it. NotFound: there is none.
absl::StatusOr<StoreCheck> CheckStoreFile(const std::string& path);

// Adds to a DataLoss of the store at `path` what to do about it; other statuses stay as they are.
absl::Status WithRemedy(absl::Status status, const std::string& path);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_STORE_STORE_FILE_H_
