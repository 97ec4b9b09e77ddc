// SPDX-License-Identifier: Apache-2.0
// Makes the calling thread an ordinary user with a small RLIMIT_MEMLOCK, as far as page locks are
// concerned.
#ifndef BLOCKSWAP_TESTS_FAKES_LOCK_LIMIT_H_
#define BLOCKSWAP_TESTS_FAKES_LOCK_LIMIT_H_

#include <sys/resource.h>

#include <cstdint>

namespace blockswap::offload {

// Restores both on destruction. The capability is dropped for the calling thread only.
class ScopedLockLimit {
 public:
  explicit ScopedLockLimit(int64_t bytes);
  ~ScopedLockLimit();
  ScopedLockLimit(const ScopedLockLimit&) = delete;
  ScopedLockLimit& operator=(const ScopedLockLimit&) = delete;

  // False when the limit could not be put in force; a test has nothing to say then.
  bool active() const { return active_; }

 private:
  rlimit old_limit_{};
  uint64_t old_effective_ = 0;
  bool active_ = false;
};

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_TESTS_FAKES_LOCK_LIMIT_H_
