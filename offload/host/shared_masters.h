// SPDX-License-Identifier: Apache-2.0
// Block weights in one read-only copy for all jobs of a server that stream the same base.
#ifndef BLOCKSWAP_OFFLOAD_HOST_SHARED_MASTERS_H_
#define BLOCKSWAP_OFFLOAD_HOST_SHARED_MASTERS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "offload/base/master_file.h"
#include "offload/host/block_reader.h"
#include "offload/host/pinned_arena.h"

namespace blockswap::offload {

// Note [Shared masters]
// A file in memory (memfd) holds one control area and, page aligned, the packed blocks of a base in
// one format; blocks that nobody streams take no memory. The server makes the file and passes its
// descriptor to workers; the first worker lays it out and seals its size. A block is empty, ready
// (with the checksum of its bytes) or spoilt. Whoever needs an empty block takes the lock on its
// byte of the control area, reads it from the checkpoint, and marks it ready; the kernel drops that
// lock when the process dies, so a claim never outlives its owner. A ready block is only ever read,
// and only after its checksum was compared; a spoilt one is not used by anybody any more.

// One process's view. Owns: a descriptor of its own, the mapped control area. Thread safety: one
// thread; processes may do what they want at the same time.
class SharedMasters {
 public:
  struct Options {
    // How long to wait for another process that fills a block before the caller should use memory
    // of its own.
    absl::Duration patience = absl::Seconds(60);
  };

  // `fd` stays the caller's. FailedPrecondition when the file is for another key or another layout
  // (packed bytes of all blocks), DataLoss when it is none of ours.
  static absl::StatusOr<std::unique_ptr<SharedMasters>> Open(int fd, const std::string& key,
                                                             const std::vector<int64_t>& sizes,
                                                             const Options& options);
  static absl::StatusOr<std::unique_ptr<SharedMasters>> Open(int fd, const std::string& key,
                                                             const std::vector<int64_t>& sizes) {
    return Open(fd, key, sizes, Options());
  }
  ~SharedMasters();
  SharedMasters(const SharedMasters&) = delete;
  SharedMasters& operator=(const SharedMasters&) = delete;

  // The block's pages, writable. ResourceExhausted when the system has no more memory.
  absl::StatusOr<PinnedArena> Map(DeviceRuntime* device, int block, PinnedArena::Lock lock);

  struct Outcome {
    bool usable = false;     // the bytes are right; else use memory of your own
    bool was_there = false;  // nothing was read
    std::string why;         // not usable
  };
  // Makes the mapped block ready. A failure is the reader's.
  absl::StatusOr<Outcome> Fill(int block, absl::Span<std::byte> mapped, const BlockReader& read);

  // True when Fill would find the block (its checksum not yet compared).
  bool IsReady(int block) const;
  int64_t filled_bytes() const { return filled_bytes_; }  // read by this view
  int64_t found_bytes() const { return found_bytes_; }    // left by others
  // Why blocks were not usable, one sentence each.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  SharedMasters(int fd, std::vector<int64_t> sizes, const Options& options);
  absl::Status LayOut(const std::string& key);
  absl::Status LayOutLocked(const std::string& key);
  base::MasterFileBlock& control_of(int block) const;
  Outcome CheckReady(int block, absl::Span<const std::byte> bytes);
  Outcome Unusable(std::string why);

  const int fd_;
  const std::vector<int64_t> sizes_;
  const Options options_;
  std::vector<int64_t> offsets_;
  int64_t control_bytes_ = 0, file_bytes_ = 0;
  std::byte* control_ = nullptr;
  int64_t filled_bytes_ = 0, found_bytes_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_HOST_SHARED_MASTERS_H_
