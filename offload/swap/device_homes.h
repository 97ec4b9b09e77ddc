// SPDX-License-Identifier: Apache-2.0
// The device memory of a plan, one arena per thing that can come or go, and its change into that of
// another plan.
#ifndef BLOCKSWAP_OFFLOAD_SWAP_DEVICE_HOMES_H_
#define BLOCKSWAP_OFFLOAD_SWAP_DEVICE_HOMES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "offload/device/device_arena.h"

namespace blockswap::offload {

enum class HomeKind { kResident, kSlot, kRest, kWindow };

// What an arena is for. `index` is the block of a resident or of the tensors that no layer has
// (kRest), the number of a slot, 0 for the window.
struct HomeKey {
  HomeKind kind = HomeKind::kResident;
  int index = 0;
  bool operator==(const HomeKey&) const = default;
};

struct HomeDemand {
  HomeKey key;
  int64_t bytes = 0;  // > 0
};

// Owns: the arenas. Thread safety: the trainer's thread only. Invariant: bytes() is what the device
// is charged for.
class DeviceHomes {
 public:
  explicit DeviceHomes(DeviceRuntime* device) : device_(device) {}

  // Becomes `demand`. An arena of the same key and size stays as it is, one of the same size serves
  // another key. In between bytes() is at most the larger of both plus the largest block asked for.
  // ResourceExhausted: the old arenas are there again, `lost` (may not be null) names those whose
  // bytes have to be written again. Internal: they could not be had again; nothing is usable.
  // REQUIRES: no queued work uses any arena.
  absl::Status Reshape(const std::vector<HomeDemand>& demand, std::vector<HomeKey>* lost);

  // Null when there is none.
  DeviceSpan span(HomeKey key) const;
  int64_t bytes() const { return bytes_; }
  int64_t peak_bytes() const { return peak_bytes_; }
  // Whether the last successful Reshape kept the arena of `key` and so its bytes.
  bool kept(HomeKey key) const;

 private:
  struct Home {
    HomeDemand demand;
    DeviceArena arena;
    bool kept = false;
  };
  struct Change;

  absl::Status Allocate(const HomeDemand& demand, std::vector<Home>& into);
  absl::Status AllocateMissing(Change& change);
  void FreeOne(Change& change);
  absl::Status Undo(Change& change, const absl::Status& cause, std::vector<HomeKey>* lost);

  DeviceRuntime* const device_;
  std::vector<Home> homes_;
  int64_t bytes_ = 0;
  int64_t peak_bytes_ = 0;
};

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_SWAP_DEVICE_HOMES_H_
