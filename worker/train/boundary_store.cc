// SPDX-License-Identifier: Apache-2.0
#include "worker/train/boundary_store.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "offload/base/byte_size.h"
#include "offload/base/status_macros.h"
#include "offload/plan/block_profile.h"

namespace blockswap::worker {
namespace {

using offload::Stream;

int64_t Aligned(int64_t bytes) {
  constexpr int64_t kAlignment = offload::kTensorAlignment;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::byte* DataOf(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.data_ptr()); }

int64_t BytesOf(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }

}  // namespace

BoundaryStore::~BoundaryStore() {
  Clear();
  // Entries that were taken back may still be on their way; what a failed device says was reported.
  runtime_->SynchronizeStream(Stream::kHostToDevice).IgnoreError();
  for (const Entry& entry : entries_) {
    runtime_->DestroyEvent(entry.down);
    runtime_->DestroyEvent(entry.up);
  }
  if (compute_ != offload::kNoEvent) runtime_->DestroyEvent(compute_);
}

int64_t BoundaryStore::EntryBytes(const Streams& streams) {
  int64_t bytes = 0;
  for (const at::Tensor& stream : streams) bytes += Aligned(BytesOf(stream));
  return bytes;
}

absl::Status BoundaryStore::Reserve(int64_t entries, int64_t bytes) {
  const int64_t largest = std::max(bytes, entry_bytes_);
  const int64_t count = std::max(entries, static_cast<int64_t>(entries_.size()));
  if (count * largest > arena_.bytes()) {
    BLOCKSWAP_RETURN_IF_ERROR(runtime_->SynchronizeStream(Stream::kHostToDevice));
    arena_ = offload::PinnedArena();  // first: both at once may be more than the host has
    entry_bytes_ = 0;
    absl::StatusOr<offload::PinnedArena> arena = absl::ResourceExhaustedError("not locked");
    if (lock_) {
      arena =
          offload::PinnedArena::Create(runtime_, count * largest, offload::PinnedArena::Lock::kYes);
    }
    if (!arena.ok()) {
      arena =
          offload::PinnedArena::Create(runtime_, count * largest, offload::PinnedArena::Lock::kNo);
    }
    if (!arena.ok()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("host memory for saved activations refused: needed ",
                       base::FormatByteSize(count * largest), " for ", count, " block inputs; ",
                       arena.status().message(), "; set memory.activation_offload to off"));
    }
    arena_ = *std::move(arena);
  }
  entry_bytes_ = largest;
  entries_.reserve(static_cast<size_t>(count));
  while (static_cast<int64_t>(entries_.size()) < count) {
    BLOCKSWAP_RETURN_IF_ERROR(CreateEvents());
  }
  return absl::OkStatus();
}

absl::Status BoundaryStore::CreateEvents() {
  if (compute_ == offload::kNoEvent) {
    BLOCKSWAP_ASSIGN_OR_RETURN(compute_, runtime_->CreateEvent());
  }
  Entry entry;
  BLOCKSWAP_ASSIGN_OR_RETURN(entry.down, runtime_->CreateEvent());
  absl::StatusOr<offload::EventId> up = runtime_->CreateEvent();
  if (!up.ok()) {
    runtime_->DestroyEvent(entry.down);
    return up.status();
  }
  entry.up = *up;
  entries_.push_back(std::move(entry));
  return absl::OkStatus();
}

absl::Status BoundaryStore::Save(int64_t index, Streams streams, int64_t in_flight) {
  if (index < 0 || index >= static_cast<int64_t>(entries_.size())) {
    return absl::InternalError(absl::StrCat("no room for saved input ", index, " of ",
                                            entries_.size(), "; reserve it first"));
  }
  Entry& entry = entries_[static_cast<size_t>(index)];
  const bool dense = std::all_of(streams.begin(), streams.end(), [](const at::Tensor& stream) {
    return stream.is_non_overlapping_and_dense();
  });
  entry.streams = std::move(streams);
  // What cannot be moved as it lies stays where it is: another layout might give other bits.
  if (!dense || EntryBytes(entry.streams) > entry_bytes_) {
    entry.state = State::kGoingDown;
    entry.parts.clear();
    return absl::OkStatus();
  }
  device_ = entry.streams.front().device();
  entry.state = State::kGoingDown;
  going_down_.push_back(index);
  BLOCKSWAP_RETURN_IF_ERROR(StartDown(&entry, HostData(index)));
  while (static_cast<int64_t>(going_down_.size()) > in_flight) BLOCKSWAP_RETURN_IF_ERROR(Retire());
  return absl::OkStatus();
}

absl::Status BoundaryStore::StartDown(Entry* entry, std::byte* host) {
  // d2h waits: compute has made the input.
  BLOCKSWAP_RETURN_IF_ERROR(runtime_->Record(compute_, Stream::kCompute));
  BLOCKSWAP_RETURN_IF_ERROR(runtime_->Wait(Stream::kDeviceToHost, compute_));
  entry->parts.clear();
  int64_t offset = 0;
  for (const at::Tensor& stream : entry->streams) {
    const int64_t bytes = BytesOf(stream);
    entry->parts.push_back(
        {stream.sizes().vec(), stream.strides().vec(), stream.scalar_type(), offset, bytes});
    if (bytes > 0) {
      BLOCKSWAP_RETURN_IF_ERROR(runtime_->CopyToHost(host + offset, {DataOf(stream), bytes}));
    }
    counters_.d2h_bytes += bytes;
    ++counters_.d2h_transfers;
    offset += Aligned(bytes);
  }
  return runtime_->Record(entry->down, Stream::kDeviceToHost);
}

absl::Status BoundaryStore::Retire() {
  Entry& entry = entries_[static_cast<size_t>(going_down_.front())];
  going_down_.pop_front();
  // Compute waits: d2h has read the input. Only then may its memory be given to another tensor.
  BLOCKSWAP_RETURN_IF_ERROR(runtime_->Wait(Stream::kCompute, entry.down));
  entry.streams.clear();
  entry.state = State::kAway;
  return absl::OkStatus();
}

absl::Status BoundaryStore::Fetch(int64_t index) {
  Entry& entry = entries_[static_cast<size_t>(index)];
  if (entry.state != State::kAway) return absl::OkStatus();
  entry.streams.clear();  // of an attempt for which there was no memory
  for (const Part& part : entry.parts) {
    entry.streams.push_back(at::empty_strided(
        part.sizes, part.strides, at::TensorOptions().dtype(part.type).device(device_)));
  }
  entry.state = State::kComingUp;
  // h2d waits: kernels that still read what this memory was before; the copy down is long done.
  BLOCKSWAP_RETURN_IF_ERROR(runtime_->Record(compute_, Stream::kCompute));
  BLOCKSWAP_RETURN_IF_ERROR(runtime_->Wait(Stream::kHostToDevice, compute_));
  BLOCKSWAP_RETURN_IF_ERROR(runtime_->Wait(Stream::kHostToDevice, entry.down));
  for (size_t i = 0; i < entry.parts.size(); ++i) {
    const Part& part = entry.parts[i];
    if (part.bytes == 0) continue;
    BLOCKSWAP_RETURN_IF_ERROR(runtime_->CopyToDevice({DataOf(entry.streams[i]), part.bytes},
                                                     HostData(index) + part.offset));
    counters_.h2d_bytes += part.bytes;
    ++counters_.h2d_transfers;
  }
  return runtime_->Record(entry.up, Stream::kHostToDevice);
}

absl::StatusOr<Streams> BoundaryStore::Take(int64_t index) {
  BLOCKSWAP_RETURN_IF_ERROR(Fetch(index));
  Entry& entry = entries_[static_cast<size_t>(index)];
  if (entry.state == State::kComingUp) {
    // Compute waits: h2d has brought the input back.
    BLOCKSWAP_RETURN_IF_ERROR(runtime_->Wait(Stream::kCompute, entry.up));
  } else if (entry.state == State::kGoingDown && !entry.parts.empty()) {
    BLOCKSWAP_RETURN_IF_ERROR(runtime_->Wait(Stream::kCompute, entry.down));
    going_down_.erase(std::remove(going_down_.begin(), going_down_.end(), index),
                      going_down_.end());
  } else if (entry.state == State::kEmpty) {
    return absl::InternalError(absl::StrCat("saved input ", index, " was never saved"));
  }
  entry.state = State::kEmpty;
  return std::exchange(entry.streams, {});
}

void BoundaryStore::Clear() {
  for (Entry& entry : entries_) {
    // A device that failed said so before; nothing of it is read any more.
    if (entry.state == State::kGoingDown || entry.state == State::kAway) {
      runtime_->Synchronize(entry.down).IgnoreError();
    } else if (entry.state == State::kComingUp) {
      runtime_->Synchronize(entry.up).IgnoreError();
    }
    entry.state = State::kEmpty;
    entry.streams.clear();
  }
  going_down_.clear();
}

}  // namespace blockswap::worker
