// SPDX-License-Identifier: Apache-2.0
// How many calls and streams one tenant may make, so that it cannot take the server from the
// others.
#ifndef BLOCKSWAP_SERVER_AUTH_CALL_LIMITS_H_
#define BLOCKSWAP_SERVER_AUTH_CALL_LIMITS_H_

#include <chrono>
#include <functional>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "offload/base/mutex.h"
#include "server/auth/identity.h"

namespace blockswap::server {

struct CallLimitOptions {
  double calls_per_second = 100;  // of one tenant, in the long run; 0: no limit
  double burst = 400;             // calls that may come at once
  int64_t streams = 64;           // watches and logs of one tenant that are open; 0: no limit
};

// Callers on the Unix socket without a token are the server's own people and are not counted.
// Thread safety: safe.
class CallLimits final {
 public:
  using Clock = std::function<std::chrono::steady_clock::time_point()>;
  explicit CallLimits(
      CallLimitOptions options, Clock now = [] { return std::chrono::steady_clock::now(); })
      : options_(options), now_(std::move(now)) {}

  // ResourceExhausted QUOTA_EXCEEDED that says the rate.
  absl::Status TakeCall(const Identity& caller);
  // ResourceExhausted TOO_MANY_STREAMS. Ok: EndStream must follow.
  absl::Status BeginStream(const Identity& caller);
  void EndStream(const Identity& caller);

 private:
  struct Tenant {
    double calls_left = 0;
    std::chrono::steady_clock::time_point filled;
    int64_t streams = 0;
  };
  Tenant& FindLocked(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const CallLimitOptions options_;
  const Clock now_;
  base::Mutex mutex_;
  // As many as tenants with tokens or certificates: who has neither is not counted here.
  std::map<std::string, Tenant> tenants_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_AUTH_CALL_LIMITS_H_
