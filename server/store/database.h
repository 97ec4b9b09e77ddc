// SPDX-License-Identifier: Apache-2.0
// One SQLite connection behind a thin class: statements with typed binding, transactions that roll
// back by themselves.
#ifndef BLOCKSWAP_SERVER_STORE_DATABASE_H_
#define BLOCKSWAP_SERVER_STORE_DATABASE_H_

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace blockswap::server {

class Database;

// Binds positionally, in order. Errors are sticky and returned by Step and Run.
class Statement final {
 public:
  Statement(Statement&&) = default;

  Statement& Bind(int64_t value);
  Statement& Bind(double value);  // NaN becomes NULL: SQLite knows none
  Statement& BindText(absl::string_view value);
  Statement& BindBlob(absl::string_view value);

  absl::StatusOr<bool> Step();  // true: a row is ready
  absl::Status Run();           // for statements without rows
  void Reset();                 // to bind and run again

  int64_t Int(int column) const { return sqlite3_column_int64(statement_.get(), column); }
  double Real(int column) const;  // NULL is NaN
  std::string Text(int column) const;

 private:
  friend class Database;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  Statement(Database* database, sqlite3_stmt* statement, absl::Status status)
      : database_(database), statement_(statement), status_(std::move(status)) {}

  Database* database_;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  absl::Status status_;
  int next_ = 1;
};

// Thread safety: one thread at a time; the owner holds a lock.
class Database final {
 public:
  // WAL, synchronous FULL, foreign keys, busy timeout 5 s.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path, bool read_only);

  Statement Prepare(const char* sql);  // a bad statement reports itself at Step
  absl::Status Execute(const std::string& sql);
  // Unavailable with reason STORE_READ_ONLY for a full disk or an I/O error, DataLoss for a corrupt
  // file.
  absl::Status LastError(absl::string_view what) const;

 private:
  struct Close {
    void operator()(sqlite3* handle) const { sqlite3_close_v2(handle); }
  };
  explicit Database(sqlite3* handle) : handle_(handle) {}
  std::unique_ptr<sqlite3, Close> handle_;
};

// BEGIN IMMEDIATE; rolled back by the destructor unless committed.
class Transaction final {
 public:
  static absl::StatusOr<Transaction> Begin(Database& database);
  Transaction(Transaction&& other) noexcept;
  ~Transaction();
  absl::Status Commit();

 private:
  explicit Transaction(Database* database) : database_(database) {}
  Database* database_;
};

// Several reads of one state of the database; ends with the object.
class Snapshot final {
 public:
  static absl::StatusOr<Snapshot> Begin(Database& database);
  Snapshot(Snapshot&& other) noexcept;
  ~Snapshot();

 private:
  explicit Snapshot(Database* database) : database_(database) {}
  Database* database_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_STORE_DATABASE_H_
