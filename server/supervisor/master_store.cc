// SPDX-License-Identifier: Apache-2.0
#include "server/supervisor/master_store.h"

#include <algorithm>
#include <utility>

#include "offload/base/master_file.h"
#include "offload/base/status_macros.h"

namespace blockswap::server {

struct MasterStore::File {
  std::string key;
  UniqueFd fd;
  int users = 0;         // under the store's lock
  int64_t last_use = 0;  // the same
  int64_t empty_bytes = 0;
};

int MasterStore::Use::fd() const { return file_ == nullptr ? -1 : file_->fd.get(); }

MasterStore::Use& MasterStore::Use::operator=(Use&& other) noexcept {
  if (this != &other) {
    End();
    store_ = other.store_;
    file_ = std::move(other.file_);
  }
  return *this;
}

void MasterStore::Use::End() {
  if (file_ != nullptr) store_->EndUse(*file_);
  file_.reset();
}

absl::StatusOr<MasterStore::Use> MasterStore::Take(const std::string& key) {
  base::MutexLock lock(mutex_);
  auto found = std::find_if(files_.begin(), files_.end(),
                            [&key](const std::shared_ptr<File>& file) { return file->key == key; });
  if (found == files_.end()) {
    BLOCKSWAP_ASSIGN_OR_RETURN(const int fd, base::CreateMasterFile(key));
    auto file = std::make_shared<File>();
    file->key = key;
    file->fd = UniqueFd(fd);
    file->empty_bytes = base::MasterFileBytes(fd);
    files_.push_back(std::move(file));
    found = files_.end() - 1;
  }
  ++(*found)->users;
  (*found)->last_use = ++uses_;
  return Use(this, *found);
}

void MasterStore::EndUse(File& file) {
  base::MutexLock lock(mutex_);
  --file.users;
  file.last_use = ++uses_;
  // One that nobody ever filled (the job settled on another) is worth no descriptor.
  if (file.users == 0 && base::MasterFileBytes(file.fd.get()) <= file.empty_bytes) {
    const auto empty = std::find_if(files_.begin(), files_.end(),
                                    [&file](const auto& other) { return other.get() == &file; });
    if (empty != files_.end()) files_.erase(empty);
  }
  FreeLocked(UsageLocked().unused_bytes - cache_bytes_);
}

int64_t MasterStore::Free(int64_t bytes) {
  base::MutexLock lock(mutex_);
  return FreeLocked(bytes);
}

int64_t MasterStore::FreeLocked(int64_t bytes) {
  int64_t freed = 0;
  while (freed < bytes) {
    auto oldest = files_.end();
    for (auto it = files_.begin(); it != files_.end(); ++it) {
      if ((*it)->users > 0) continue;
      if (oldest == files_.end() || (*it)->last_use < (*oldest)->last_use) oldest = it;
    }
    if (oldest == files_.end()) break;
    freed += base::MasterFileBytes((*oldest)->fd.get());
    files_.erase(oldest);
  }
  return freed;
}

SharedMemoryUsage MasterStore::UsageLocked() const {
  SharedMemoryUsage usage;
  usage.files = static_cast<int>(files_.size());
  for (const std::shared_ptr<File>& file : files_) {
    (file->users > 0 ? usage.used_bytes : usage.unused_bytes) +=
        base::MasterFileBytes(file->fd.get());
  }
  return usage;
}

std::vector<SharedBase> MasterStore::bases() const {
  base::MutexLock lock(mutex_);
  std::vector<SharedBase> bases;
  for (const std::shared_ptr<File>& file : files_) {
    bases.push_back({file->key, base::ReadyMasterBlocks(file->fd.get()), file->users > 0});
  }
  return bases;
}

SharedMemoryUsage MasterStore::usage() const {
  base::MutexLock lock(mutex_);
  return UsageLocked();
}

}  // namespace blockswap::server
