// SPDX-License-Identifier: Apache-2.0
#include "server/store/store_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "server/base/unique_fd.h"
#include "server/store/schema.h"

namespace blockswap::server {
namespace {

constexpr size_t kMaxProblems = 100;

// Nothing where there is no file.
std::optional<int64_t> SizeOf(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return std::nullopt;
  return facts.st_size;
}

// Of a file or a directory.
absl::Status Sync(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.valid() && ::fsync(fd.get()) == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("state store: cannot sync ", path, ": ", std::strerror(errno)));
}

absl::Status Publish(const std::string& from, const std::string& to) {
  BLOCKSWAP_RETURN_IF_ERROR(Sync(from));
  if (::rename(from.c_str(), to.c_str()) != 0) {
    return absl::UnavailableError(
        absl::StrCat("state store: cannot rename ", from, " to ", to, ": ", std::strerror(errno)));
  }
  const std::string directory = std::filesystem::path(to).parent_path().string();
  return Sync(directory.empty() ? "." : directory);
}

// With what SQLite keeps beside it.
void Remove(const std::string& path) {
  for (const char* suffix : {"", "-wal", "-shm", "-journal"}) {
    ::unlink(absl::StrCat(path, suffix).c_str());
  }
}

}  // namespace

std::string StoreFileOf(const std::string& state_directory) {
  return absl::StrCat(state_directory, "/jobs.db");
}

absl::Status PrepareStoreFile(const std::string& path) {
  const std::optional<int64_t> bytes = SizeOf(path);
  if (bytes.value_or(0) > 0) return absl::OkStatus();
  const int64_t log_bytes = SizeOf(absl::StrCat(path, "-wal")).value_or(0);
  if (log_bytes > 0) {
    return absl::DataLossError(absl::StrCat("state store: ", path,
                                            bytes.has_value() ? " is empty" : " is missing",
                                            ", its log ", path, "-wal has ", log_bytes, " bytes"));
  }
  if (bytes.has_value()) {
    return absl::DataLossError(
        absl::StrCat("state store: ", path, " is an empty file, which no store ever is"));
  }
  const std::string fresh = absl::StrCat(path, ".new");
  Remove(fresh);
  {
    BLOCKSWAP_ASSIGN_OR_RETURN(auto database, Database::Open(fresh, /*read_only=*/false));
    BLOCKSWAP_RETURN_IF_ERROR(MigrateSchema(*database, fresh));
    // Closed by the last connection, its log goes into the file.
  }
  return Publish(fresh, path);
}

absl::Status CopyStore(Database& database, const std::string& path) {
  const std::string partial = absl::StrCat(path, ".partial");
  Remove(partial);
  absl::Status written;
  {
    auto copy = database.Prepare("VACUUM INTO ?");
    written = copy.BindText(partial).Run();
  }
  // SQLite syncs nothing of such a copy.
  if (written.ok()) written = Publish(partial, path);
  if (!written.ok()) Remove(partial);
  return written;
}

absl::StatusOr<StoreCheck> CheckStoreFile(const std::string& path) {
  const std::optional<int64_t> bytes = SizeOf(path);
  if (!bytes.has_value()) {
    return absl::NotFoundError(absl::StrCat("there is no state store ", path));
  }
  StoreCheck check;
  check.bytes = *bytes + SizeOf(absl::StrCat(path, "-wal")).value_or(0);
  if (*bytes == 0) {
    check.problems.emplace_back("the file is empty");
    return check;
  }
  BLOCKSWAP_ASSIGN_OR_RETURN(auto database, Database::Open(path, /*read_only=*/true));
  auto version = database->Prepare("PRAGMA user_version");
  const absl::Status readable = version.Step().status();
  if (absl::IsDataLoss(readable)) {
    check.problems.emplace_back(readable.message());
    return check;
  }
  BLOCKSWAP_RETURN_IF_ERROR(readable);
  check.schema_version = static_cast<int>(version.Int(0));
  for (const std::string& sql :
       {absl::StrCat("PRAGMA integrity_check(", kMaxProblems, ")"),
        std::string("SELECT 'a row of ' || \"table\" || ' belongs to no job' FROM "
                    "pragma_foreign_key_check LIMIT 100")}) {
    auto query = database->Prepare(sql.c_str());
    while (check.problems.size() < kMaxProblems) {
      auto row = query.Step();
      if (!row.ok()) check.problems.emplace_back(row.status().message());
      if (!row.ok() || !*row) break;
      if (query.Text(0) != "ok") check.problems.push_back(query.Text(0));
    }
  }
  return check;
}

absl::Status WithRemedy(absl::Status status, const std::string& path) {
  if (!absl::IsDataLoss(status)) return status;
  return absl::DataLossError(absl::StrCat(
      status.message(), "; the state store ", path,
      " is damaged and was left as it is: blockswapd --check-store says what is wrong; put back a "
      "copy (backups/ beside it, made by \"blockswap server backup\", or ",
      path, ".v<N>.bak of before a migration), or move ", path,
      "* away to begin with an empty one; outputs and checkpoints of jobs are not in it"));
}

}  // namespace blockswap::server
