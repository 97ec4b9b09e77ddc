// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/lock_limit.h"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace blockswap::offload {
namespace {

struct Capabilities {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};

  bool Read() { return syscall(SYS_capget, &header, data) == 0; }
  bool Write() { return syscall(SYS_capset, &header, data) == 0; }
};

constexpr uint32_t kLockBit = uint32_t{1} << CAP_IPC_LOCK;

}  // namespace

ScopedLockLimit::ScopedLockLimit(int64_t bytes) {
  Capabilities capabilities;
  if (!capabilities.Read()) return;
  old_effective_ = capabilities.data[0].effective;
  if (getrlimit(RLIMIT_MEMLOCK, &old_limit_) != 0) return;
  rlimit limit = old_limit_;
  limit.rlim_cur = static_cast<rlim_t>(bytes);
  if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return;
  capabilities.data[0].effective &= ~kLockBit;
  active_ = capabilities.Write();
}

ScopedLockLimit::~ScopedLockLimit() {
  Capabilities capabilities;
  if (active_ && capabilities.Read()) {
    capabilities.data[0].effective = static_cast<uint32_t>(old_effective_);
    capabilities.Write();
  }
  setrlimit(RLIMIT_MEMLOCK, &old_limit_);
}

}  // namespace blockswap::offload
