// SPDX-License-Identifier: Apache-2.0
// The API's tokens: made once, shown once, known afterwards by their hash alone.
#ifndef BLOCKSWAP_SERVER_AUTH_TOKEN_TABLE_H_
#define BLOCKSWAP_SERVER_AUTH_TOKEN_TABLE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "offload/base/mutex.h"
#include "server/auth/identity.h"
#include "server/base/wall_clock.h"
#include "server/store/job_store.h"

namespace blockswap::server {

// Clocks of two machines need not agree to the second: a token is taken this long after its end.
inline constexpr int64_t kExpiryToleranceMicros = int64_t{60} * 1000000;

// Thread safety: safe. Everything is in memory, too: a look-up touches no disk, and a store that
// became read only refuses nobody.
class TokenTable final {
 public:
  // `now` is the wall clock in microseconds; tests give their own.
  static absl::StatusOr<std::unique_ptr<TokenTable>> Load(
      JobStore& store, std::function<int64_t()> now = WallMicros);

  struct Created {
    TokenRecord record;
    std::string token;  // "bst_" and 43 characters; nobody can ask for it again
  };
  // `expire_micros` 0: never. InvalidArgument: a name that is empty or longer than 63 characters,
  // no such role, no such tenant, an end in the past. AlreadyExists TOKEN_EXISTS: a valid token has
  // this name.
  absl::StatusOr<Created> Create(const std::string& name, const std::string& role,
                                 const std::string& tenant, int64_t expire_micros);
  std::vector<TokenRecord> List() const;
  // Takes effect at once for new calls; open streams end within seconds. NotFound TOKEN_NOT_FOUND.
  absl::StatusOr<TokenRecord> Revoke(int64_t id);

  // Unauthenticated TOKEN_INVALID (unknown or revoked: the caller is not told which) or
  // TOKEN_EXPIRED.
  absl::StatusOr<Identity> Find(const std::string& token);
  // Whether calls of this token may go on; for streams that are open.
  bool IsValid(int64_t id) const;

 private:
  TokenTable(JobStore& store, std::function<int64_t()> now) : store_(store), now_(std::move(now)) {}
  bool IsExpired(const TokenRecord& token) const;
  absl::Status CheckNew(const std::string& name, const std::string& role, const std::string& tenant,
                        int64_t expire_micros) const;

  JobStore& store_;
  const std::function<int64_t()> now_;
  mutable base::Mutex mutex_;
  std::map<std::string, TokenRecord> by_hash_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_AUTH_TOKEN_TABLE_H_
