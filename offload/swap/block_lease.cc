// SPDX-License-Identifier: Apache-2.0
#include "offload/swap/block_lease.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "offload/swap/block_swapper_impl.h"

namespace blockswap::offload {

BlockLease& BlockLease::operator=(BlockLease&& other) noexcept {
  if (this != &other) {
    Release();
    swapper_ = std::exchange(other.swapper_, nullptr);
    block_ = other.block_;
    slot_ = other.slot_;
    generation_ = other.generation_;
    visit_ = other.visit_;
  }
  return *this;
}

absl::StatusOr<DeviceSpan> BlockLease::Get(int index) const {
  if (swapper_ == nullptr) {
    return absl::InternalError(absl::StrCat("lease of block ", block_, " used after its end"));
  }
  return swapper_->impl_->Tensor(block_, slot_, generation_, index);
}

absl::StatusOr<TensorLease> BlockLease::Hold(int index) const {
  if (swapper_ == nullptr) {
    return absl::InternalError(absl::StrCat("lease of block ", block_, " used after its end"));
  }
  return swapper_->impl_->Hold(swapper_, block_, slot_, generation_, index);
}

void BlockLease::Release() {
  BlockSwapper* swapper = std::exchange(swapper_, nullptr);
  if (swapper != nullptr) swapper->impl_->Release(slot_, visit_);
}

void TensorLease::Release() {
  BlockSwapper* swapper = std::exchange(swapper_, nullptr);
  span_ = DeviceSpan{};
  if (swapper != nullptr) swapper->impl_->EndHold(unit_);
}

}  // namespace blockswap::offload
