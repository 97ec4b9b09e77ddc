// SPDX-License-Identifier: Apache-2.0
#include "worker/kernels/device_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <cstdlib>
#include <new>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "offload/base/byte_size.h"
#include "offload/base/mutex.h"

namespace blockswap::worker {
namespace {

using offload::MemoryLedger;
using offload::MemoryTag;

// Same alignment as LibTorch's own CPU allocator: its kernels' fast paths are chosen by it.
constexpr size_t kAlignment = 64;
constexpr int kExempt = -1;
// Beyond any machine, and low enough that rounding up cannot overflow.
constexpr size_t kMaxRequestBytes = size_t{1} << 60;

thread_local int current_tag = static_cast<int>(MemoryTag::kOther);

// Which ledger a block was charged to; `epoch` 0 means to none.
struct BlockHeader {
  int64_t epoch;
  int64_t bytes;
  int tag;
};
static_assert(sizeof(BlockHeader) <= kAlignment);

// Freed blocks are kept for the next tensor of exactly their size: a step allocates the same sizes
// again and again, and the system's allocator spends a tenth of a small model's step on splitting
// and on page faults. Kept blocks are not charged to the ledger.
#if defined(__SANITIZE_ADDRESS__)
constexpr int64_t kMaxKeptBytes = 0;  // a kept block would hide a use after free
#else
constexpr int64_t kMaxKeptBytes = 32 * base::kMiB;
#endif
constexpr int64_t kMaxKeptBlockBytes = 4 * base::kMiB;

// The installed ledger. A block that outlives its ledger carries an old epoch and is not released
// from the new one.
struct Installed {
  base::Mutex mutex;
  MemoryLedger* ledger ABSL_GUARDED_BY(mutex) = nullptr;
  int64_t epoch ABSL_GUARDED_BY(mutex) = 0;
  std::unordered_map<int64_t, std::vector<void*>> kept ABSL_GUARDED_BY(mutex);
  int64_t kept_bytes ABSL_GUARDED_BY(mutex) = 0;
};

Installed& TheInstalled() {
  static auto* const installed =
      new Installed;  // never destroyed: tensors may be freed by static destructors
  return *installed;
}

// Charges `bytes` to `tag`, notes the epoch to release in (0: nothing is counted), and takes a kept
// block of that size if there is one.
void* ChargeAndTake(int tag, int64_t bytes, int64_t* epoch) {
  Installed& installed = TheInstalled();
  absl::Status status;
  {
    base::MutexLock lock(installed.mutex);
    *epoch = 0;
    if (tag != kExempt && installed.ledger != nullptr) {
      status = installed.ledger->Charge(static_cast<MemoryTag>(tag), bytes);
      *epoch = installed.epoch;
    }
    if (status.ok()) {
      const auto found = installed.kept.find(bytes);
      if (found == installed.kept.end() || found->second.empty()) return nullptr;
      void* const block = found->second.back();
      found->second.pop_back();
      installed.kept_bytes -= bytes;
      return block;
    }
  }
  C10_THROW_ERROR(OutOfMemoryError, std::string(status.message()));
}

// Takes the charge back and keeps `block` (may be null); false when the caller has to free it.
bool ReleaseOrKeep(const BlockHeader& header, void* block) {
  Installed& installed = TheInstalled();
  base::MutexLock lock(installed.mutex);
  if (header.epoch != 0 && installed.ledger != nullptr && installed.epoch == header.epoch) {
    installed.ledger->Release(static_cast<MemoryTag>(header.tag), header.bytes);
  }
  if (block == nullptr || header.bytes > kMaxKeptBlockBytes ||
      installed.kept_bytes + header.bytes > kMaxKeptBytes) {
    return false;
  }
  installed.kept[header.bytes].push_back(block);
  installed.kept_bytes += header.bytes;
  return true;
}

BlockHeader* HeaderOf(void* data) {
  return reinterpret_cast<BlockHeader*>(static_cast<std::byte*>(data) - kAlignment);
}

void FreeBlock(void* data) {
  if (data == nullptr) return;
  BlockHeader* const header = HeaderOf(data);
  if (!ReleaseOrKeep(BlockHeader(*header), header)) std::free(header);
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &FreeBlock, device};
    if (bytes > kMaxRequestBytes) {
      C10_THROW_ERROR(OutOfMemoryError,
                      absl::StrCat("a tensor of ", bytes, " bytes was asked for"));
    }
    const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    BlockHeader header{0, static_cast<int64_t>(rounded), current_tag};
    void* block = ChargeAndTake(header.tag, header.bytes, &header.epoch);
    if (block == nullptr && posix_memalign(&block, kAlignment, rounded + kAlignment) != 0) {
      ReleaseOrKeep(header, nullptr);
      C10_THROW_ERROR(OutOfMemoryError,
                      absl::StrCat("the system refused ", base::FormatByteSize(header.bytes),
                                   " of host memory; free memory or lower the budget"));
    }
    void* data = static_cast<std::byte*>(block) + kAlignment;
    new (block) BlockHeader(header);
    return {data, data, &FreeBlock, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &FreeBlock; }
  void copy_data(void* destination, const void* source, std::size_t count) const override {
    default_copy_data(destination, source, count);
  }
};

// Above the built-in allocator's 0, so that a later registration at 0 does not displace it.
constexpr uint8_t kAllocatorPriority = 100;

}  // namespace

CountedHostMemory::CountedHostMemory(MemoryLedger* ledger) {
  // Installed once and kept: blocks of either allocator may be alive at any time, and each knows
  // how to free itself.
  static const bool kInstalled = [] {
    c10::SetCPUAllocator(new CountingAllocator, kAllocatorPriority);
    return true;
  }();
  static_cast<void>(kInstalled);
  Installed& installed = TheInstalled();
  base::MutexLock lock(installed.mutex);
  TORCH_CHECK(installed.ledger == nullptr, "two ledgers for the host device's memory at once");
  installed.ledger = ledger;
  ++installed.epoch;
}

CountedHostMemory::~CountedHostMemory() {
  Installed& installed = TheInstalled();
  base::MutexLock lock(installed.mutex);
  installed.ledger = nullptr;
}

MemoryScope::MemoryScope(MemoryTag tag) : previous_(current_tag) {
  if (previous_ != kExempt) current_tag = static_cast<int>(tag);
}
MemoryScope::~MemoryScope() { current_tag = previous_; }

HostMemoryScope::HostMemoryScope() : previous_(current_tag) { current_tag = kExempt; }
HostMemoryScope::~HostMemoryScope() { current_tag = previous_; }

}  // namespace blockswap::worker
