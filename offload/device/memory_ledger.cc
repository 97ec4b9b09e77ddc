// SPDX-License-Identifier: Apache-2.0
#include "offload/device/memory_ledger.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "offload/base/byte_size.h"

namespace blockswap::offload {

absl::string_view MemoryTagName(MemoryTag tag) {
  switch (tag) {
    case MemoryTag::kRing:
      return "ring";
    case MemoryTag::kResidentBlocks:
      return "resident_blocks";
    case MemoryTag::kEdgeWeights:
      return "edge_weights";
    case MemoryTag::kAdapter:
      return "adapter";
    case MemoryTag::kOptimizer:
      return "optimizer";
    case MemoryTag::kActivations:
      return "activations";
    case MemoryTag::kOther:
      return "other";
  }
  return "unknown";
}

void RaisePeaks(const MemorySnapshot& earlier, MemorySnapshot* snapshot) {
  for (size_t tag = 0; tag < snapshot->peak_bytes.size(); ++tag) {
    snapshot->peak_bytes[tag] = std::max(snapshot->peak_bytes[tag], earlier.peak_bytes[tag]);
  }
  snapshot->total_peak_bytes = std::max(snapshot->total_peak_bytes, earlier.total_peak_bytes);
}

absl::Status MemoryLedger::Charge(MemoryTag tag, int64_t bytes) {
  if (bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat("negative charge: ", bytes, " bytes"));
  }
  if (before_charge_) before_charge_(*this);
  int64_t budget = 0;
  int64_t in_use = 0;
  {
    base::MutexLock lock(mutex_);
    budget = budget_bytes_;
    in_use = state_.total_bytes;
    // Compared by subtraction: a huge request must not overflow the sum.
    if (budget == 0 || bytes <= budget - in_use) {
      int64_t& current = state_.current_bytes[static_cast<int>(tag)];
      int64_t& peak = state_.peak_bytes[static_cast<int>(tag)];
      current += bytes;
      peak = std::max(peak, current);
      state_.total_bytes += bytes;
      state_.total_peak_bytes = std::max(state_.total_peak_bytes, state_.total_bytes);
      return absl::OkStatus();
    }
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "device memory budget exceeded by ", MemoryTagName(tag), ": asked ", bytes, " bytes (",
      base::FormatByteSize(bytes), "), in use ", in_use, ", budget ", budget, " (",
      base::FormatByteSize(budget), "), free ", std::max<int64_t>(0, budget - in_use),
      "; raise vram_budget, stream more blocks or lower the batch size or resolution"));
}

void MemoryLedger::Release(MemoryTag tag, int64_t bytes) {
  base::MutexLock lock(mutex_);
  int64_t& current = state_.current_bytes[static_cast<int>(tag)];
  if (bytes < 0 || bytes > current) {
    // A programmer's error that would make every later figure wrong.
    std::fprintf(stderr, "memory ledger: released %lld bytes of %s, only %lld are charged\n",
                 static_cast<long long>(bytes), MemoryTagName(tag).data(),
                 static_cast<long long>(current));
    std::abort();
  }
  current -= bytes;
  state_.total_bytes -= bytes;
}

void MemoryLedger::SetBudget(int64_t budget_bytes) {
  base::MutexLock lock(mutex_);
  budget_bytes_ = budget_bytes;
}

void MemoryLedger::ResetPeaks() {
  base::MutexLock lock(mutex_);
  state_.peak_bytes = state_.current_bytes;
  state_.total_peak_bytes = state_.total_bytes;
}

MemorySnapshot MemoryLedger::Snapshot() const {
  base::MutexLock lock(mutex_);
  MemorySnapshot snapshot = state_;
  snapshot.budget_bytes = budget_bytes_;
  return snapshot;
}

}  // namespace blockswap::offload
