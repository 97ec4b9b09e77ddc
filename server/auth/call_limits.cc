// SPDX-License-Identifier: Apache-2.0
#include "server/auth/call_limits.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/base/reason.h"

namespace blockswap::server {
namespace {

bool IsCounted(const Identity& caller) { return caller.source != "unix"; }

}  // namespace

CallLimits::Tenant& CallLimits::FindLocked(const std::string& name) {
  const auto now = now_();
  const auto [entry, is_new] = tenants_.try_emplace(name);
  Tenant& tenant = entry->second;
  if (is_new) {
    tenant.calls_left = options_.burst;
  } else {
    const double seconds = std::chrono::duration<double>(now - tenant.filled).count();
    tenant.calls_left =
        std::min(options_.burst, tenant.calls_left + seconds * options_.calls_per_second);
  }
  tenant.filled = now;
  return tenant;
}

absl::Status CallLimits::TakeCall(const Identity& caller) {
  if (options_.calls_per_second <= 0 || !IsCounted(caller)) return absl::OkStatus();
  base::MutexLock lock(mutex_);
  Tenant& tenant = FindLocked(caller.tenant);
  if (tenant.calls_left >= 1) {
    tenant.calls_left -= 1;
    return absl::OkStatus();
  }
  return WithReason(
      absl::ResourceExhaustedError(absl::StrCat("too many calls of tenant ", caller.tenant, ": ",
                                                options_.calls_per_second,
                                                " a second are allowed; call again later")),
      "QUOTA_EXCEEDED",
      {{"tenant", caller.tenant}, {"limit", absl::StrCat(options_.calls_per_second)}});
}

absl::Status CallLimits::BeginStream(const Identity& caller) {
  if (options_.streams <= 0 || !IsCounted(caller)) return absl::OkStatus();
  base::MutexLock lock(mutex_);
  Tenant& tenant = FindLocked(caller.tenant);
  if (tenant.streams < options_.streams) {
    ++tenant.streams;
    return absl::OkStatus();
  }
  return WithReason(
      absl::ResourceExhaustedError(absl::StrCat("too many streams of tenant ", caller.tenant,
                                                ": at most ", options_.streams, " may be open")),
      "TOO_MANY_STREAMS", {{"tenant", caller.tenant}, {"limit", absl::StrCat(options_.streams)}});
}

void CallLimits::EndStream(const Identity& caller) {
  if (options_.streams <= 0 || !IsCounted(caller)) return;
  base::MutexLock lock(mutex_);
  --FindLocked(caller.tenant).streams;
}

}  // namespace blockswap::server
