// SPDX-License-Identifier: Apache-2.0
#include "worker/kernels/device_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <cstdlib>
#include <new>
#include <string>

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

thread_local int current_tag = static_cast<int>(MemoryTag::kOther);

// Which ledger a block was charged to; `epoch` 0 means to none.
struct BlockHeader {
  int64_t epoch;
  int64_t bytes;
  int tag;
};
static_assert(sizeof(BlockHeader) <= kAlignment);

// The installed ledger. A block that outlives its ledger carries an old epoch and is not released from the new one.
struct Installed {
  base::Mutex mutex;
  MemoryLedger* ledger ABSL_GUARDED_BY(mutex) = nullptr;
  int64_t epoch ABSL_GUARDED_BY(mutex) = 0;
};

Installed& TheInstalled() {
  static auto* const installed = new Installed;  // never destroyed: tensors may be freed by static destructors
  return *installed;
}

// Charges `bytes`; returns the epoch to release in, or 0 when nothing is counted.
int64_t Charge(int tag, int64_t bytes) {
  if (tag == kExempt) return 0;
  Installed& installed = TheInstalled();
  absl::Status status;
  {
    base::MutexLock lock(installed.mutex);
    if (installed.ledger == nullptr) return 0;
    status = installed.ledger->Charge(static_cast<MemoryTag>(tag), bytes);
    if (status.ok()) return installed.epoch;
  }
  C10_THROW_ERROR(OutOfMemoryError, std::string(status.message()));
}

void Release(const BlockHeader& header) {
  if (header.epoch == 0) return;
  Installed& installed = TheInstalled();
  base::MutexLock lock(installed.mutex);
  if (installed.ledger == nullptr || installed.epoch != header.epoch) return;
  installed.ledger->Release(static_cast<MemoryTag>(header.tag), header.bytes);
}

BlockHeader* HeaderOf(void* data) {
  return reinterpret_cast<BlockHeader*>(static_cast<std::byte*>(data) - kAlignment);
}

void FreeBlock(void* data) {
  if (data == nullptr) return;
  BlockHeader* header = HeaderOf(data);
  Release(*header);
  std::free(header);
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &FreeBlock, device};
    const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    const int tag = current_tag;
    BlockHeader header{Charge(tag, static_cast<int64_t>(rounded)), static_cast<int64_t>(rounded), tag};
    void* block = nullptr;
    if (rounded < bytes || posix_memalign(&block, kAlignment, rounded + kAlignment) != 0) {
      Release(header);
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
  // Installed once and kept: blocks of either allocator may be alive at any time, and each knows how to free itself.
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
