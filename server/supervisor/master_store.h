// SPDX-License-Identifier: Apache-2.0
// The base weights that jobs share: one memory file a base and format, kept between workers under a
// budget.
#ifndef BLOCKSWAP_SERVER_SUPERVISOR_MASTER_STORE_H_
#define BLOCKSWAP_SERVER_SUPERVISOR_MASTER_STORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "offload/base/mutex.h"
#include "server/base/unique_fd.h"
#include "server/supervisor/worker_launcher.h"

namespace blockswap::server {

// Owns: the files. A file's memory goes back when it is closed here and no worker has it any more.
// Thread safety: safe.
class MasterStore final {
 public:
  // Of files that no worker uses, those used longest ago are closed while they take more than
  // `cache_bytes` together.
  explicit MasterStore(int64_t cache_bytes) : cache_bytes_(cache_bytes) {}

  struct File;
  // One worker's use of a file; ends with the value.
  class Use {
   public:
    Use() = default;
    Use(MasterStore* store, std::shared_ptr<File> file) : store_(store), file_(std::move(file)) {}
    Use(Use&& other) noexcept = default;
    Use& operator=(Use&& other) noexcept;
    ~Use() { End(); }
    int fd() const;  // -1: none

   private:
    void End();
    MasterStore* store_ = nullptr;
    std::shared_ptr<File> file_;
  };

  // The file for weights with this key, made when there is none.
  absl::StatusOr<Use> Take(const std::string& key);

  // Closes files that no worker uses, those used longest ago first, until `bytes` are free again or
  // none is left; returns what that freed.
  int64_t Free(int64_t bytes);

  SharedMemoryUsage usage() const;
  std::vector<SharedBase> bases() const;

 private:
  void EndUse(File& file);
  int64_t FreeLocked(int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  SharedMemoryUsage UsageLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int64_t cache_bytes_;
  mutable base::Mutex mutex_;
  std::vector<std::shared_ptr<File>> files_ ABSL_GUARDED_BY(mutex_);
  int64_t uses_ ABSL_GUARDED_BY(mutex_) = 0;  // counts up, to tell which was used last
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SUPERVISOR_MASTER_STORE_H_
