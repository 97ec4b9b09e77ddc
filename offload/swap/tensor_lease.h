// SPDX-License-Identifier: Apache-2.0
// The right to read one tensor of a leased block, as long as this value lives.
#ifndef BLOCKSWAP_OFFLOAD_SWAP_TENSOR_LEASE_H_
#define BLOCKSWAP_OFFLOAD_SWAP_TENSOR_LEASE_H_

#include <utility>

#include "offload/device/device_runtime.h"

namespace blockswap::offload {

class BlockSwapper;

// Move-only. At block granularity the block's lease is what keeps the bytes, and this is a span. At
// layer granularity it keeps the tensor's layer in the window: its end records "compute is past"
// and lets the next loads go, so it must live exactly as long as work is being queued on the span.
// Thread safety: the trainer's thread, or one that the trainer's thread waits for. REQUIRES:
// outlived by the BlockSwapper.
class TensorLease {
 public:
  TensorLease() = default;
  TensorLease(TensorLease&& other) noexcept { *this = std::move(other); }
  TensorLease& operator=(TensorLease&& other) noexcept {
    if (this != &other) {
      Release();
      swapper_ = std::exchange(other.swapper_, nullptr);
      span_ = std::exchange(other.span_, DeviceSpan{});
      unit_ = other.unit_;
    }
    return *this;
  }
  ~TensorLease() { Release(); }

  // Empty after the end of the lease.
  DeviceSpan span() const { return span_; }

  // True when the bytes may go as soon as this value ends, sooner than the block's lease.
  bool transient() const { return swapper_ != nullptr; }

  // Ends the lease. A failure to record is kept by the swapper and returned by its next call.
  void Release();

 private:
  friend class BlockSwapper;
  friend class BlockLease;
  explicit TensorLease(DeviceSpan span) : span_(span) {}
  TensorLease(BlockSwapper* swapper, DeviceSpan span, int unit)
      : swapper_(swapper), span_(span), unit_(unit) {}

  BlockSwapper* swapper_ = nullptr;  // nullptr: nothing to give back
  DeviceSpan span_;
  int unit_ = -1;
};

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_SWAP_TENSOR_LEASE_H_
