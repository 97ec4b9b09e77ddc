// SPDX-License-Identifier: Apache-2.0
#include "offload/host/host_masters.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "offload/base/byte_size.h"
#include "offload/base/host_facts.h"
#include "offload/base/status_macros.h"
#include "offload/device/host_memory.h"

namespace blockswap::offload {
namespace {

absl::Status Refused(const std::vector<MasterSpec>& specs, const std::string& cause) {
  int64_t bytes = 0;
  for (const MasterSpec& spec : specs) bytes += PageCeil(spec.bytes);
  return absl::ResourceExhaustedError(
      absl::StrCat("page-locked host memory for the masters of ", specs.size(),
                   " streamed blocks refused: asked ", bytes, " bytes (",
                   base::FormatByteSize(bytes), "), RLIMIT_MEMLOCK ", LockLimitText(),
                   "; raise the limit (ulimit -l), lower blocks_to_swap, or set pinned_memory to "
                   "auto; cause: ",
                   cause));
}

}  // namespace

absl::StatusOr<HostMasters> HostMasters::Create(DeviceRuntime* device,
                                                const std::vector<MasterSpec>& specs,
                                                PinPolicy policy, const Sharing& sharing) {
  HostMasters masters;
  masters.device_ = device;
  masters.policy_ = policy;
  masters.sharing_ = sharing;
  int taken = 0;
  if (policy != PinPolicy::kNever) {
    BLOCKSWAP_ASSIGN_OR_RETURN(taken, masters.TakeLocked(specs));
  }
  for (; taken < static_cast<int>(specs.size()); ++taken) {
    BLOCKSWAP_ASSIGN_OR_RETURN(Home home, masters.Take(specs[taken], PinnedArena::Lock::kNo));
    masters.homes_.push_back(std::move(home));
  }
  return masters;
}

absl::StatusOr<int> HostMasters::TakeLocked(const std::vector<MasterSpec>& specs) {
  absl::Status refused;
  for (const MasterSpec& spec : specs) {
    if (!LockMayFit(spec.stays_in_file ? 0 : spec.bytes)) {
      refused = absl::ResourceExhaustedError(
          absl::StrCat("at most ", base::FormatByteSize(base::ReadHostFacts().lockable_bytes),
                       " more may be locked (the limit, and ",
                       static_cast<int>(base::kLockableShare * 100), " % of available memory)"));
      break;
    }
    absl::StatusOr<Home> home = Take(spec, PinnedArena::Lock::kYes);
    if (!home.ok()) {
      refused = home.status();
      break;
    }
    homes_.push_back(*std::move(home));
  }
  if (refused.ok()) return static_cast<int>(homes_.size());
  if (policy_ == PinPolicy::kRequired) return Refused(specs, std::string(refused.message()));
  if (sharing_.one_tier) {
    homes_.clear();
  } else {
    LeaveRoom();
  }
  return static_cast<int>(homes_.size());
}

void HostMasters::LeaveRoom() {
  // Held only while trying, so that what is left afterwards is enough for the staging buffers.
  while (!homes_.empty() &&
         !PinnedArena::Create(device_, sharing_.reserved_bytes, PinnedArena::Lock::kYes).ok()) {
    homes_.pop_back();
  }
}

bool HostMasters::LockMayFit(int64_t bytes) const {
  return PageCeil(bytes) <= base::ReadHostFacts().lockable_bytes;
}

absl::StatusOr<PinnedArena> HostMasters::TakeArena(const MasterSpec& spec, PinnedArena::Lock lock,
                                                   bool* shared) {
  *shared = sharing_.shared != nullptr && spec.block != kNoContent;
  if (*shared) return sharing_.shared->Map(device_, spec.block, lock);
  return PinnedArena::Create(device_, spec.bytes, lock);
}

absl::StatusOr<HostMasters::Home> HostMasters::Take(const MasterSpec& spec,
                                                    PinnedArena::Lock lock) {
  Home home;
  home.spec = spec;
  if (spec.stays_in_file) {
    home.buffer = {.data = nullptr, .bytes = spec.bytes, .tier = HostTier::kFile};
    return home;
  }
  BLOCKSWAP_ASSIGN_OR_RETURN(home.arena, TakeArena(spec, lock, &home.shared));
  home.buffer = {.data = home.arena.data(),
                 .bytes = spec.bytes,
                 .tier = lock == PinnedArena::Lock::kYes ? HostTier::kPinned : HostTier::kPageable};
  return home;
}

absl::StatusOr<int> HostMasters::Add(const MasterSpec& spec) {
  absl::StatusOr<Home> home = absl::UnavailableError("not tried");
  const bool may_lock = policy_ != PinPolicy::kNever && !(sharing_.one_tier && has_pageable()) &&
                        LockMayFit(spec.bytes + sharing_.reserved_bytes);
  if (may_lock) home = Take(spec, PinnedArena::Lock::kYes);
  if (!home.ok() && policy_ == PinPolicy::kRequired) {
    return Refused({spec}, std::string(home.status().message()));
  }
  if (!home.ok()) home = Take(spec, PinnedArena::Lock::kNo);
  BLOCKSWAP_RETURN_IF_ERROR(home.status());
  homes_.push_back(*std::move(home));
  return size() - 1;
}

void HostMasters::Remove(int index) { homes_[index] = Home(); }

absl::Status HostMasters::Fill(int index, const BlockReader& read) {
  Home& home = homes_[index];
  const auto span = absl::MakeSpan(home.buffer.data, static_cast<size_t>(home.buffer.bytes));
  if (home.buffer.tier == HostTier::kFile) return absl::OkStatus();
  if (!home.shared) return read(home.spec.block, span);
  absl::StatusOr<SharedMasters::Outcome> outcome =
      sharing_.shared->Fill(home.spec.block, span, read);
  BLOCKSWAP_RETURN_IF_ERROR(outcome.status());
  if (!outcome->usable) {
    notes_.push_back(outcome->why);
    return MakePrivate(home, read);
  }
  if (outcome->was_there) reused_bytes_ += home.buffer.bytes;
  return home.arena.MakeReadOnly();
}

absl::Status HostMasters::MakePrivate(Home& home, const BlockReader& read) {
  const PinnedArena::Lock lock =
      home.buffer.tier == HostTier::kPinned ? PinnedArena::Lock::kYes : PinnedArena::Lock::kNo;
  home.arena = PinnedArena();
  home.shared = false;
  BLOCKSWAP_ASSIGN_OR_RETURN(home.arena, PinnedArena::Create(device_, home.spec.bytes, lock));
  home.buffer.data = home.arena.data();
  return read(home.spec.block,
              absl::MakeSpan(home.buffer.data, static_cast<size_t>(home.buffer.bytes)));
}

int64_t HostMasters::bytes_of(HostTier tier) const {
  int64_t bytes = 0;
  for (const Home& home : homes_) bytes += home.buffer.tier == tier ? home.buffer.bytes : 0;
  return bytes;
}

int64_t HostMasters::shared_bytes() const {
  int64_t bytes = 0;
  for (const Home& home : homes_) bytes += home.shared ? home.buffer.bytes : 0;
  return bytes;
}

int64_t HostMasters::locked_bytes() const {
  int64_t bytes = 0;
  for (const Home& home : homes_) bytes += home.arena.locked_bytes();
  return bytes;
}

}  // namespace blockswap::offload
