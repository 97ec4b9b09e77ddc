// SPDX-License-Identifier: Apache-2.0
#include "offload/swap/device_homes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"

namespace blockswap::offload {
namespace {

MemoryTag TagOf(HomeKind kind) {
  return kind == HomeKind::kSlot || kind == HomeKind::kWindow ? MemoryTag::kRing
                                                              : MemoryTag::kResidentBlocks;
}

}  // namespace

// One Reshape under way. An arena is in exactly one of the three lists.
struct DeviceHomes::Change {
  std::vector<Home> next;           // kept, inherited or new
  std::vector<Home> surplus;        // of the old plan, not needed any more
  std::vector<HomeDemand> missing;  // still to be allocated, largest last
  std::vector<HomeDemand> freed;    // of the old plan, given back already
  std::vector<HomeDemand> renamed;  // old demand of what `next` inherited, in its order
  std::vector<size_t> heirs;        // indices into `next`
  int64_t limit = 0;
};

absl::Status DeviceHomes::Allocate(const HomeDemand& demand, std::vector<Home>& into) {
  BLOCKSWAP_ASSIGN_OR_RETURN(DeviceArena arena,
                             DeviceArena::Create(device_, demand.bytes, TagOf(demand.key.kind)));
  into.push_back({demand, std::move(arena), /*kept=*/false});
  bytes_ += demand.bytes;
  peak_bytes_ = std::max(peak_bytes_, bytes_);
  return absl::OkStatus();
}

void DeviceHomes::FreeOne(Change& change) {
  Home& home = change.surplus.back();
  change.freed.push_back(home.demand);
  bytes_ -= home.demand.bytes;
  change.surplus.pop_back();
}

// Grows first, as far as the limit lets it: what is still there cannot be refused when it has to be
// had again.
absl::Status DeviceHomes::AllocateMissing(Change& change) {
  while (!change.missing.empty()) {
    const HomeDemand demand = change.missing.back();
    while (bytes_ + demand.bytes > change.limit && !change.surplus.empty()) FreeOne(change);
    const absl::Status status = Allocate(demand, change.next);
    if (status.ok()) {
      change.missing.pop_back();
    } else if (change.surplus.empty()) {
      return status;
    } else {
      FreeOne(change);
    }
  }
  while (!change.surplus.empty()) FreeOne(change);
  return absl::OkStatus();
}

absl::Status DeviceHomes::Undo(Change& change, const absl::Status& cause,
                               std::vector<HomeKey>* lost) {
  std::vector<Home> old = std::move(change.surplus);
  for (size_t i = 0; i < change.heirs.size(); ++i) {
    Home& home = change.next[change.heirs[i]];
    home.demand = change.renamed[i];
    home.kept = true;  // nobody has written to it yet
  }
  for (Home& home : change.next) {
    if (home.kept) {
      old.push_back(std::move(home));
    } else {
      bytes_ -= home.demand.bytes;
    }
  }
  change.next.clear();  // gives the new arenas back
  homes_ = std::move(old);
  for (const HomeDemand& demand : change.freed) {
    const absl::Status again = Allocate(demand, homes_);
    if (!again.ok()) {
      return absl::InternalError(
          absl::StrCat("device memory of the previous plan is lost: ", demand.bytes,
                       " bytes given back for a new plan were refused when it failed; cause: ",
                       std::string(cause.message()), "; then: ", std::string(again.message())));
    }
    lost->push_back(demand.key);
  }
  return cause;
}

absl::Status DeviceHomes::Reshape(const std::vector<HomeDemand>& demand,
                                  std::vector<HomeKey>* lost) {
  Change change;
  int64_t wanted = 0;
  int64_t largest = 0;
  change.surplus = std::move(homes_);
  homes_.clear();
  const auto take = [&](const auto& fits) {
    const auto found = std::find_if(change.surplus.begin(), change.surplus.end(), fits);
    if (found == change.surplus.end()) return false;
    change.next.push_back(std::move(*found));
    change.surplus.erase(found);
    return true;
  };
  for (const HomeDemand& home : demand) {
    wanted += home.bytes;
    if (home.key.kind != HomeKind::kWindow) largest = std::max(largest, home.bytes);
    const bool kept = take([&](const Home& old) {
      return old.demand.key == home.key && old.demand.bytes == home.bytes;
    });
    if (kept) {
      change.next.back().kept = true;
    } else {
      change.missing.push_back(home);
    }
  }
  std::vector<HomeDemand> absent = std::exchange(change.missing, {});
  for (const HomeDemand& home : absent) {
    const bool found = take([&](const Home& old) {
      return old.demand.bytes == home.bytes && TagOf(old.demand.key.kind) == TagOf(home.key.kind);
    });
    if (!found) {
      change.missing.push_back(home);
      continue;
    }
    change.renamed.push_back(std::exchange(change.next.back().demand, home));
    change.heirs.push_back(change.next.size() - 1);
    change.next.back().kept = false;
  }
  std::stable_sort(change.missing.begin(), change.missing.end(),
                   [](const HomeDemand& a, const HomeDemand& b) { return a.bytes < b.bytes; });
  change.limit = std::max(bytes_, wanted) + largest;
  const absl::Status status = AllocateMissing(change);
  if (!status.ok()) return Undo(change, status, lost);
  homes_ = std::move(change.next);
  return absl::OkStatus();
}

DeviceSpan DeviceHomes::span(HomeKey key) const {
  for (const Home& home : homes_) {
    if (home.demand.key == key) return home.arena.Sub(0, home.demand.bytes);
  }
  return DeviceSpan{};
}

bool DeviceHomes::kept(HomeKey key) const {
  return std::any_of(homes_.begin(), homes_.end(),
                     [&](const Home& home) { return home.demand.key == key && home.kept; });
}

}  // namespace blockswap::offload
