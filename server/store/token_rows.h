// SPDX-License-Identifier: Apache-2.0
// Keeps the tokens of the API: their hashes, never themselves.
#ifndef BLOCKSWAP_SERVER_STORE_TOKEN_ROWS_H_
#define BLOCKSWAP_SERVER_STORE_TOKEN_ROWS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store/database.h"

namespace blockswap::server {

struct TokenRecord {
  int64_t id = 0;    // given by the store
  std::string hash;  // SHA-256 of the token, raw
  std::string name, role, tenant;
  int64_t create_micros = 0;
  int64_t expire_micros = 0;  // 0: never
  int64_t last_used_micros = 0;
  int64_t revoke_micros = 0;  // 0: not revoked
};

// Sets `token.id`.
absl::Status InsertToken(Database& database, TokenRecord& token);
absl::Status UpdateToken(Database& database, const TokenRecord& token);
absl::StatusOr<std::vector<TokenRecord>> SelectTokens(Database& database);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_STORE_TOKEN_ROWS_H_
