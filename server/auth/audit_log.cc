// SPDX-License-Identifier: Apache-2.0
#include "server/auth/audit_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/base/log.h"

namespace blockswap::server {
namespace {

// Of what a caller wrote: more says nothing more about who did what.
constexpr size_t kMaxText = 256;

// What a power cut or a full disk leaves; an empty file does not.
bool EndsWithinALine(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file || file.tellg() <= 0) return false;
  file.seekg(-1, std::ios::end);
  return file.get() != '\n';
}

std::string Cut(const std::string& text) { return text.substr(0, kMaxText); }

}  // namespace

std::string ToJsonLine(const AuditRecord& record) {
  nlohmann::ordered_json line;
  line["time"] = absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::FromUnixMicros(record.time_micros),
                                  absl::UTCTimeZone());
  line["caller"] = Cut(record.caller.name);
  line["role"] = RoleName(record.caller.role);
  line["tenant"] = record.caller.name.empty() ? "" : record.caller.tenant;
  line["by"] = record.caller.source;
  line["peer"] = Cut(record.peer);
  line["rpc"] = record.method;
  line["resource"] = Cut(record.resource);
  line["decision"] = record.decision;
  line["request_id"] = record.request_id;
  // Control characters, quotes and everything beyond ASCII come out escaped.
  return line.dump(-1, ' ', /*ensure_ascii=*/true,
                   nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

absl::StatusOr<std::unique_ptr<AuditLog>> AuditLog::Open(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) {
    return absl::FailedPreconditionError(absl::StrCat("cannot open the audit log ", path, ": ",
                                                      std::strerror(errno),
                                                      "; audit_log names another file, or off"));
  }
  // Where even that cannot be written, the first line will not be, either, and says so.
  if (EndsWithinALine(path) && ::write(file.get(), "\n", 1) != 1) {
    LogWarning("audit log {}: its last line is cut and cannot be ended", path);
  }
  return std::unique_ptr<AuditLog>(new AuditLog(std::move(file), path));
}

void AuditLog::Write(const AuditRecord& record) {
  const std::string line = ToJsonLine(record);
  const ssize_t written = ::write(file_.get(), line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) return;
  if (lost_.fetch_add(1, std::memory_order_relaxed) == 0) {
    LogError("audit log {}: a line could not be written: {}", path_, std::strerror(errno));
  }
}

}  // namespace blockswap::server
