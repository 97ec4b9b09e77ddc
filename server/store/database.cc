// SPDX-License-Identifier: Apache-2.0
#include "server/store/database.h"

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "server/base/reason.h"

namespace blockswap::server {
namespace {

// SQLite's own macro is an old-style cast: copy the bytes, the caller's buffer may go.
const auto kTransient = reinterpret_cast<sqlite3_destructor_type>(-1);

}  // namespace

Statement& Statement::Bind(int64_t value) {
  if (status_.ok() && sqlite3_bind_int64(statement_.get(), next_++, value) != SQLITE_OK) {
    status_ = database_->LastError("bind");
  }
  return *this;
}

Statement& Statement::Bind(double value) {
  const int result = !status_.ok()       ? SQLITE_OK
                     : std::isnan(value) ? sqlite3_bind_null(statement_.get(), next_++)
                                         : sqlite3_bind_double(statement_.get(), next_++, value);
  if (result != SQLITE_OK) status_ = database_->LastError("bind");
  return *this;
}

Statement& Statement::BindText(absl::string_view value) {
  if (status_.ok() && sqlite3_bind_text(statement_.get(), next_++, value.data(),
                                        static_cast<int>(value.size()), kTransient) != SQLITE_OK) {
    status_ = database_->LastError("bind");
  }
  return *this;
}

Statement& Statement::BindBlob(absl::string_view value) {
  // An empty blob with a null pointer would be NULL, which NOT NULL columns refuse.
  const char* bytes = value.empty() ? "" : value.data();
  if (status_.ok() && sqlite3_bind_blob(statement_.get(), next_++, bytes,
                                        static_cast<int>(value.size()), kTransient) != SQLITE_OK) {
    status_ = database_->LastError("bind");
  }
  return *this;
}

absl::StatusOr<bool> Statement::Step() {
  BLOCKSWAP_RETURN_IF_ERROR(status_);
  const int result = sqlite3_step(statement_.get());
  if (result == SQLITE_ROW) return true;
  if (result == SQLITE_DONE) return false;
  return database_->LastError("step");
}

absl::Status Statement::Run() {
  BLOCKSWAP_ASSIGN_OR_RETURN(const bool row, Step());
  return row ? absl::InternalError("statement returned a row where none was expected")
             : absl::OkStatus();
}

void Statement::Reset() {
  sqlite3_reset(statement_.get());
  sqlite3_clear_bindings(statement_.get());
  next_ = 1;
}

double Statement::Real(int column) const {
  if (sqlite3_column_type(statement_.get(), column) == SQLITE_NULL) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return sqlite3_column_double(statement_.get(), column);
}

std::string Statement::Text(int column) const {
  const void* bytes = sqlite3_column_blob(statement_.get(), column);
  const int length = sqlite3_column_bytes(statement_.get(), column);
  if (bytes == nullptr || length <= 0) return std::string();
  return std::string(static_cast<const char*>(bytes), static_cast<size_t>(length));
}

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::string& path, bool read_only) {
  sqlite3* handle = nullptr;
  const int mode = read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  const int result = sqlite3_open_v2(path.c_str(), &handle,
                                     mode | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, nullptr);
  std::unique_ptr<Database> database(new Database(handle));
  if (result != SQLITE_OK) return database->LastError(absl::StrCat("open ", path));
  sqlite3_busy_timeout(handle, 5000);
  if (!read_only) {
    auto journal = database->Prepare("PRAGMA journal_mode=WAL");
    BLOCKSWAP_RETURN_IF_ERROR(journal.Step().status());
    // FULL: a job that was answered must survive a power cut, which NORMAL does not promise in WAL.
    BLOCKSWAP_RETURN_IF_ERROR(database->Execute("PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON"));
  }
  return database;
}

Statement Database::Prepare(const char* sql) {
  sqlite3_stmt* statement = nullptr;
  absl::Status status;
  if (sqlite3_prepare_v2(handle_.get(), sql, -1, &statement, nullptr) != SQLITE_OK) {
    status = LastError(absl::StrCat("prepare \"", sql, "\""));
  }
  return Statement(this, statement, std::move(status));
}

absl::Status Database::Execute(const std::string& sql) {
  if (sqlite3_exec(handle_.get(), sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
    return LastError("execute");
  }
  return absl::OkStatus();
}

absl::Status Database::LastError(absl::string_view what) const {
  const int code = sqlite3_errcode(handle_.get());
  const std::string message =
      absl::StrCat("state store: ", what, ": ", sqlite3_errmsg(handle_.get()), " (", code, ")");
  switch (code & 0xff) {
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_READONLY:
      return WithReason(absl::UnavailableError(absl::StrCat(
                            message, "; reads are still served, free disk space and try again")),
                        "STORE_READ_ONLY");
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(message);
    case SQLITE_CONSTRAINT:
      return absl::AlreadyExistsError(message);
    case SQLITE_CANTOPEN:
      return absl::FailedPreconditionError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::StatusOr<Transaction> Transaction::Begin(Database& database) {
  BLOCKSWAP_RETURN_IF_ERROR(database.Execute("BEGIN IMMEDIATE"));
  return Transaction(&database);
}

Transaction::Transaction(Transaction&& other) noexcept
    : database_(std::exchange(other.database_, nullptr)) {}

Transaction::~Transaction() {
  // SQLite may have rolled back by itself (disk full); a second time is an error to ignore.
  if (database_ != nullptr) database_->Execute("ROLLBACK").IgnoreError();
}

absl::Status Transaction::Commit() {
  BLOCKSWAP_RETURN_IF_ERROR(database_->Execute("COMMIT"));
  database_ = nullptr;
  return absl::OkStatus();
}

absl::StatusOr<Snapshot> Snapshot::Begin(Database& database) {
  BLOCKSWAP_RETURN_IF_ERROR(database.Execute("BEGIN DEFERRED"));
  return Snapshot(&database);
}

Snapshot::Snapshot(Snapshot&& other) noexcept
    : database_(std::exchange(other.database_, nullptr)) {}

Snapshot::~Snapshot() {
  // Nothing was written: there is nothing that could fail to be kept.
  if (database_ != nullptr) database_->Execute("COMMIT").IgnoreError();
}

}  // namespace blockswap::server
