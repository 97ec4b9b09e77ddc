// SPDX-License-Identifier: Apache-2.0
#include "server/store/token_rows.h"

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "server/base/reason.h"
#include "server/store/job_store.h"
#include "server/store/row_columns.h"

namespace blockswap::server {
namespace {

constexpr Column<TokenRecord> kColumns[] = {
    Of<&TokenRecord::id>("id"),
    BlobOf<&TokenRecord::hash>("hash"),
    Of<&TokenRecord::name>("name"),
    Of<&TokenRecord::role>("role"),
    Of<&TokenRecord::tenant>("tenant"),
    Of<&TokenRecord::create_micros>("create_micros"),
    Of<&TokenRecord::expire_micros>("expire_micros"),
    Of<&TokenRecord::last_used_micros>("last_used_micros"),
    Of<&TokenRecord::revoke_micros>("revoke_micros"),
};

}  // namespace

absl::Status InsertToken(Database& database, TokenRecord& token) {
  auto row = database.Prepare(
      "INSERT INTO tokens (hash, name, role, tenant, create_micros, expire_micros, "
      "last_used_micros, revoke_micros) VALUES (?,?,?,?,?,?,0,0) RETURNING id");
  BLOCKSWAP_ASSIGN_OR_RETURN(const bool made, row.BindBlob(token.hash)
                                                  .BindText(token.name)
                                                  .BindText(token.role)
                                                  .BindText(token.tenant)
                                                  .Bind(token.create_micros)
                                                  .Bind(token.expire_micros)
                                                  .Step());
  if (!made) return absl::InternalError("the store gave the token no number");
  token.id = row.Int(0);
  // To its end: only then is the statement over and the row there.
  return row.Step().status();
}

absl::Status UpdateToken(Database& database, const TokenRecord& token) {
  auto row = database.Prepare("UPDATE tokens SET last_used_micros=?, revoke_micros=? WHERE id=?");
  return row.Bind(token.last_used_micros).Bind(token.revoke_micros).Bind(token.id).Run();
}

absl::StatusOr<std::vector<TokenRecord>> SelectTokens(Database& database) {
  auto query = database.Prepare(
      absl::StrCat("SELECT ", ColumnNames(kColumns), " FROM tokens ORDER BY id").c_str());
  return ReadRows(query, [](const Statement& row) { return ReadRecord(kColumns, row); });
}

absl::Status JobStore::AddToken(TokenRecord& token) {
  base::MutexLock lock(write_mutex_);
  absl::Status written = InsertToken(*writer_, token);
  return written.ok() ? written : Failed(std::move(written));
}

absl::Status JobStore::SaveToken(const TokenRecord& token) {
  base::MutexLock lock(write_mutex_);
  absl::Status written = UpdateToken(*writer_, token);
  return written.ok() ? written : Failed(std::move(written));
}

absl::StatusOr<std::vector<TokenRecord>> JobStore::ListTokens() {
  base::MutexLock lock(read_mutex_);
  return SelectTokens(*reader_);
}

absl::StatusOr<std::string> JobStore::TenantOf(const std::string& job_id) {
  base::MutexLock lock(read_mutex_);
  auto query = reader_->Prepare("SELECT tenant FROM jobs WHERE id=?");
  BLOCKSWAP_ASSIGN_OR_RETURN(const bool found, query.BindText(job_id).Step());
  if (!found) return JobNotFound(job_id);
  return query.Text(0);
}

}  // namespace blockswap::server
