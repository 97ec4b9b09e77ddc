// SPDX-License-Identifier: Apache-2.0
#include "server/auth/token_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "server/base/log.h"
#include "server/base/random_text.h"
#include "server/base/reason.h"

namespace blockswap::server {
namespace {

constexpr int kSecretBytes = 32;
constexpr size_t kMaxName = 63;
// One write a token and minute at most, however often it is used.
constexpr int64_t kUsedEveryMicros = int64_t{60} * 1000000;
// Found by scanners that look for secrets in places where they do not belong.
constexpr char kPrefix[] = "bst_";

bool IsName(const std::string& name) {
  if (name.empty() || name.size() > kMaxName) return false;
  return std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < '\x7f'; });
}

absl::Status Invalid() {
  return WithReason(
      absl::UnauthenticatedError(
          "the token is unknown or revoked; ask an admin for another (blockswap token create)"),
      "TOKEN_INVALID");
}

}  // namespace

absl::StatusOr<std::unique_ptr<TokenTable>> TokenTable::Load(JobStore& store,
                                                             std::function<int64_t()> now) {
  std::unique_ptr<TokenTable> table(new TokenTable(store, std::move(now)));
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::vector<TokenRecord> tokens, store.ListTokens());
  base::MutexLock lock(table->mutex_);
  for (const TokenRecord& token : tokens) table->by_hash_[token.hash] = token;
  return table;
}

bool TokenTable::IsExpired(const TokenRecord& token) const {
  return token.expire_micros != 0 && now_() > token.expire_micros + kExpiryToleranceMicros;
}

absl::Status TokenTable::CheckNew(const std::string& name, const std::string& role,
                                  const std::string& tenant, int64_t expire_micros) const {
  if (!IsName(name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("name: must have 1 to ", kMaxName, " printable characters without spaces"));
  }
  const auto known = ParseRole(role);
  if (!known.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "role: \"", absl::CEscape(role), "\" is none of viewer, submitter, operator, admin"));
  }
  const bool all = tenant == kAllTenants && *known == Role::kViewer;
  if (!all && !IsValidTenant(tenant)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tenant: \"", absl::CEscape(tenant),
        "\" must be lower-case letters, digits and '-', beginning with a letter, at most 32; "
        "viewers may have *, for all"));
  }
  if (expire_micros != 0 && expire_micros <= now_()) {
    return absl::InvalidArgumentError("expire_time: is in the past");
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenTable::Created> TokenTable::Create(const std::string& name,
                                                       const std::string& role,
                                                       const std::string& tenant,
                                                       int64_t expire_micros) {
  BLOCKSWAP_RETURN_IF_ERROR(CheckNew(name, role, tenant, expire_micros));
  Created created;
  created.token = absl::StrCat(kPrefix, absl::WebSafeBase64Escape(RandomBytes(kSecretBytes)));
  created.record.hash = Sha256(created.token);
  created.record.name = name;
  created.record.role = role;
  created.record.tenant = tenant;
  created.record.create_micros = now_();
  created.record.expire_micros = expire_micros;
  for (const TokenRecord& other : List()) {
    if (other.name == name && other.revoke_micros == 0 && !IsExpired(other)) {
      return WithReason(
          absl::AlreadyExistsError(absl::StrCat("a token with the name ", name,
                                                " is valid; revoke it first or choose another")),
          "TOKEN_EXISTS", {{"name", name}});
    }
  }
  BLOCKSWAP_RETURN_IF_ERROR(store_.AddToken(created.record));
  base::MutexLock lock(mutex_);
  by_hash_[created.record.hash] = created.record;
  return created;
}

std::vector<TokenRecord> TokenTable::List() const {
  std::vector<TokenRecord> tokens;
  {
    base::MutexLock lock(mutex_);
    for (const auto& [hash, token] : by_hash_) tokens.push_back(token);
  }
  std::sort(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  return tokens;
}

absl::StatusOr<TokenRecord> TokenTable::Revoke(int64_t id) {
  TokenRecord revoked;
  {
    base::MutexLock lock(mutex_);
    const auto found = std::find_if(by_hash_.begin(), by_hash_.end(),
                                    [id](const auto& entry) { return entry.second.id == id; });
    if (found == by_hash_.end()) {
      return WithReason(absl::NotFoundError(absl::StrCat("no such token: ", id)), "TOKEN_NOT_FOUND",
                        {{"token", absl::StrCat(id)}});
    }
    // In memory first: a disk that is full keeps nobody in.
    if (found->second.revoke_micros == 0) found->second.revoke_micros = now_();
    revoked = found->second;
  }
  BLOCKSWAP_RETURN_IF_ERROR(store_.SaveToken(revoked));
  return revoked;
}

absl::StatusOr<Identity> TokenTable::Find(const std::string& token) {
  const std::string hash = Sha256(token);
  Identity identity;
  TokenRecord used;
  {
    base::MutexLock lock(mutex_);
    // Searched by hash: how long that takes tells something of a hash, nothing of a token.
    const auto found = by_hash_.find(hash);
    if (found == by_hash_.end() || !EqualsInConstantTime(found->first, hash)) return Invalid();
    TokenRecord& record = found->second;
    if (record.revoke_micros != 0) return Invalid();
    if (IsExpired(record)) {
      return WithReason(absl::UnauthenticatedError(absl::StrCat(
                            "the token ", record.name, " has expired; ask an admin for another")),
                        "TOKEN_EXPIRED", {{"token", record.name}});
    }
    identity.name = record.name;
    identity.role = ParseRole(record.role).value_or(Role::kNone);
    identity.tenant = record.tenant;
    identity.token_id = record.id;
    identity.source = "token";
    if (now_() - record.last_used_micros >= kUsedEveryMicros) {
      record.last_used_micros = now_();
      used = record;
    }
  }
  if (used.id != 0) store_.SaveToken(used).IgnoreError();  // for people only; the store logs it
  return identity;
}

bool TokenTable::IsValid(int64_t id) const {
  base::MutexLock lock(mutex_);
  for (const auto& [hash, token] : by_hash_) {
    if (token.id == id) return token.revoke_micros == 0 && !IsExpired(token);
  }
  return false;
}

}  // namespace blockswap::server
