// SPDX-License-Identifier: Apache-2.0
// Who did what and was it allowed: one JSON object a line, only ever appended to.
#ifndef BLOCKSWAP_SERVER_AUTH_AUDIT_LOG_H_
#define BLOCKSWAP_SERVER_AUTH_AUDIT_LOG_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/auth/identity.h"
#include "server/base/unique_fd.h"

namespace blockswap::server {

struct AuditRecord {
  int64_t time_micros = 0;
  Identity caller;         // the name is empty when nobody was recognised
  std::string peer;        // "unix:" or "ipv4:10.0.0.7:51234"
  std::string method;      // "TrainingService/CreateJob"
  std::string resource;    // "jobs/a", or what the caller wrote there
  std::string decision;    // "allowed", or the reason of the refusal
  std::string request_id;  // also in the answer's metadata
};

// One line with its newline. Text of callers cannot end it or pretend to be another field.
std::string ToJsonLine(const AuditRecord& record);

// Thread safety: safe; a line is one write at the end of the file, so lines never mix.
class AuditLog final {
 public:
  // Appends to the file, which is made 0600. FailedPrecondition: it cannot be opened.
  static absl::StatusOr<std::unique_ptr<AuditLog>> Open(const std::string& path);

  // A disk that is full stops no call: what could not be written is counted and logged once.
  void Write(const AuditRecord& record);
  int64_t lost() const { return lost_.load(std::memory_order_relaxed); }

 private:
  AuditLog(UniqueFd file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  const UniqueFd file_;
  const std::string path_;
  std::atomic<int64_t> lost_{0};  // relaxed: a count
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_AUTH_AUDIT_LOG_H_
