// SPDX-License-Identifier: Apache-2.0
#include "offload/host/link_measurement.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "offload/base/status_macros.h"
#include "offload/device/device_arena.h"
#include "offload/host/pinned_arena.h"

namespace blockswap::offload {
namespace {

constexpr int kSmallCopies = 64;
constexpr int64_t kSmallCopyBytes = 4096;
constexpr absl::Duration kPoll = absl::Microseconds(20);
constexpr int64_t kStagingPieces = 8;  // of the trial: enough to overlap both halves of staging

// Owns: what a trial needs on both sides.
struct Buffers {
  DeviceArena device_in, device_out;
  PinnedArena host_in, host_out;
};

absl::StatusOr<PinnedArena> HostBuffer(DeviceRuntime* device, int64_t bytes) {
  absl::StatusOr<PinnedArena> locked = PinnedArena::Create(device, bytes, PinnedArena::Lock::kYes);
  if (locked.ok() || device->copies_need_pinned_memory()) return locked;
  return PinnedArena::Create(device, bytes, PinnedArena::Lock::kNo);
}

absl::StatusOr<Buffers> TakeBuffers(DeviceRuntime* device, int64_t bytes) {
  Buffers buffers;
  BLOCKSWAP_ASSIGN_OR_RETURN(buffers.device_in,
                             DeviceArena::Create(device, bytes, MemoryTag::kOther));
  BLOCKSWAP_ASSIGN_OR_RETURN(buffers.device_out,
                             DeviceArena::Create(device, bytes, MemoryTag::kOther));
  BLOCKSWAP_ASSIGN_OR_RETURN(buffers.host_in, HostBuffer(device, bytes));
  BLOCKSWAP_ASSIGN_OR_RETURN(buffers.host_out, HostBuffer(device, bytes));
  // Touched: the first copy must not pay for page faults.
  std::memset(buffers.host_in.data(), 1, static_cast<size_t>(bytes));
  std::memset(buffers.host_out.data(), 2, static_cast<size_t>(bytes));
  return buffers;
}

absl::StatusOr<double> BestSeconds(int repeats, absl::FunctionRef<absl::Status()> work) {
  BLOCKSWAP_RETURN_IF_ERROR(work());  // warms up clocks and mappings
  double best = 0;
  for (int i = 0; i < repeats; ++i) {
    const absl::Time begin = absl::Now();
    BLOCKSWAP_RETURN_IF_ERROR(work());
    const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
    if (i == 0 || seconds < best) best = seconds;
  }
  return std::max(best, 1e-9);
}

absl::Status WaitForCopies(DeviceRuntime* device) {
  BLOCKSWAP_RETURN_IF_ERROR(device->SynchronizeStream(Stream::kHostToDevice));
  return device->SynchronizeStream(Stream::kDeviceToHost);
}

// Runs `work` with two events; no copy is under way any more when it returns.
template <typename Work>
auto WithEvents(DeviceRuntime* device, const Work& work)
    -> decltype(work(std::array<EventId, 2>())) {
  std::array<EventId, 2> events{kNoEvent, kNoEvent};
  BLOCKSWAP_ASSIGN_OR_RETURN(events[0], device->CreateEvent());
  absl::StatusOr<EventId> second = device->CreateEvent();
  if (!second.ok()) {
    device->DestroyEvent(events[0]);
    return second.status();
  }
  events[1] = *second;
  auto result = work(events);
  WaitForCopies(device).IgnoreError();  // what failed was reported; the buffers go away now
  for (const EventId event : events) device->DestroyEvent(event);
  return result;
}

// As pageable masters travel: the host fills one pinned piece while the other is on the link.
absl::Status CopyPageable(DeviceRuntime* device, const PinnedArena& pageable, Buffers& buffers,
                          const std::array<EventId, 2>& drained) {
  const int64_t bytes = pageable.bytes();
  if (!device->copies_need_pinned_memory()) {
    BLOCKSWAP_RETURN_IF_ERROR(
        device->CopyToDevice(buffers.device_in.Sub(0, bytes), pageable.data()));
    return device->SynchronizeStream(Stream::kHostToDevice);
  }
  const int64_t piece = bytes / kStagingPieces;
  for (int64_t i = 0; i < kStagingPieces; ++i) {
    const size_t half = static_cast<size_t>(i % 2);
    std::byte* staging = (half == 0 ? buffers.host_in : buffers.host_out).data();
    if (i >= 2) BLOCKSWAP_RETURN_IF_ERROR(device->Synchronize(drained[half]));
    std::memcpy(staging, pageable.data() + i * piece, static_cast<size_t>(piece));
    BLOCKSWAP_RETURN_IF_ERROR(
        device->CopyToDevice(buffers.device_in.Sub(i * piece, piece), staging));
    BLOCKSWAP_RETURN_IF_ERROR(device->Record(drained[half], Stream::kHostToDevice));
  }
  return device->SynchronizeStream(Stream::kHostToDevice);
}

absl::StatusOr<double> PageableSeconds(DeviceRuntime* device, const LinkTrial& trial,
                                       Buffers& buffers) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const PinnedArena pageable,
                             PinnedArena::Create(device, trial.bytes, PinnedArena::Lock::kNo));
  std::memset(pageable.data(), 3, static_cast<size_t>(trial.bytes));
  return WithEvents(device, [&](const std::array<EventId, 2>& drained) {
    return BestSeconds(trial.repeats,
                       [&] { return CopyPageable(device, pageable, buffers, drained); });
  });
}

struct BothWays {
  double down_seconds = 0, up_seconds = 0;  // from the common start
};

absl::StatusOr<BothWays> CopyBothWays(DeviceRuntime* device, DeviceSpan in, DeviceSpan out,
                                      Buffers& buffers, const std::array<EventId, 2>& done) {
  const absl::Time begin = absl::Now();
  BLOCKSWAP_RETURN_IF_ERROR(device->CopyToDevice(in, buffers.host_in.data()));
  BLOCKSWAP_RETURN_IF_ERROR(device->Record(done[0], Stream::kHostToDevice));
  BLOCKSWAP_RETURN_IF_ERROR(device->CopyToHost(buffers.host_out.data(), out));
  BLOCKSWAP_RETURN_IF_ERROR(device->Record(done[1], Stream::kDeviceToHost));
  BothWays both;
  while (both.down_seconds == 0 || both.up_seconds == 0) {
    const double now = std::max(1e-9, absl::ToDoubleSeconds(absl::Now() - begin));
    if (both.down_seconds == 0 && device->IsComplete(done[0])) both.down_seconds = now;
    if (both.up_seconds == 0 && device->IsComplete(done[1])) both.up_seconds = now;
    absl::SleepFor(kPoll);
  }
  BLOCKSWAP_RETURN_IF_ERROR(WaitForCopies(device));  // where a failure shows
  return both;
}

// The repeat in which both were done first.
absl::StatusOr<BothWays> BestBothWays(DeviceRuntime* device, const LinkTrial& trial, DeviceSpan in,
                                      DeviceSpan out, Buffers& buffers) {
  return WithEvents(device, [&](const std::array<EventId, 2>& done) -> absl::StatusOr<BothWays> {
    BothWays best;
    for (int i = 0; i < trial.repeats; ++i) {
      BLOCKSWAP_ASSIGN_OR_RETURN(const BothWays both, CopyBothWays(device, in, out, buffers, done));
      const double whole = std::max(both.down_seconds, both.up_seconds);
      if (i == 0 || whole < std::max(best.down_seconds, best.up_seconds)) best = both;
    }
    return best;
  });
}

absl::StatusOr<LinkMeasurement> MeasureWith(DeviceRuntime* device, const LinkTrial& trial,
                                            Buffers& buffers) {
  const DeviceSpan in = buffers.device_in.Sub(0, trial.bytes);
  const DeviceSpan out = buffers.device_out.Sub(0, trial.bytes);
  const auto down = [&] { return device->CopyToDevice(in, buffers.host_in.data()); };
  const auto up = [&] { return device->CopyToHost(buffers.host_out.data(), out); };
  BLOCKSWAP_ASSIGN_OR_RETURN(const double down_seconds,
                             BestSeconds(trial.repeats, [&]() -> absl::Status {
                               BLOCKSWAP_RETURN_IF_ERROR(down());
                               return WaitForCopies(device);
                             }));
  BLOCKSWAP_ASSIGN_OR_RETURN(const double up_seconds,
                             BestSeconds(trial.repeats, [&]() -> absl::Status {
                               BLOCKSWAP_RETURN_IF_ERROR(up());
                               return WaitForCopies(device);
                             }));
  BLOCKSWAP_ASSIGN_OR_RETURN(const BothWays both, BestBothWays(device, trial, in, out, buffers));
  BLOCKSWAP_ASSIGN_OR_RETURN(
      const double small_seconds, BestSeconds(trial.repeats, [&]() -> absl::Status {
        const DeviceSpan small = buffers.device_in.Sub(0, std::min(kSmallCopyBytes, trial.bytes));
        for (int i = 0; i < kSmallCopies; ++i) {
          BLOCKSWAP_RETURN_IF_ERROR(device->CopyToDevice(small, buffers.host_in.data()));
        }
        return WaitForCopies(device);
      }));
  BLOCKSWAP_ASSIGN_OR_RETURN(const double pageable_seconds,
                             PageableSeconds(device, trial, buffers));
  const double bytes = static_cast<double>(trial.bytes);
  LinkMeasurement measured;
  measured.h2d_bytes_per_second = bytes / down_seconds;
  measured.d2h_bytes_per_second = bytes / up_seconds;
  // Averages of copies that began together: what the slower one still moves when the faster has
  // ended counts with it, for small trials tell nothing finer.
  measured.duplex_h2d_bytes_per_second = bytes / both.down_seconds;
  measured.duplex_d2h_bytes_per_second = bytes / both.up_seconds;
  const double whole = std::max(both.down_seconds, both.up_seconds);
  measured.duplex_factor = std::clamp((down_seconds + up_seconds) / whole, 1.0, 2.0);
  measured.pageable_bytes_per_second = bytes / pageable_seconds;
  measured.latency = absl::Seconds(small_seconds / kSmallCopies);
  measured.pinned = buffers.host_in.locked_bytes() > 0;
  return measured;
}

}  // namespace

absl::StatusOr<LinkMeasurement> MeasureLink(DeviceRuntime* device, const LinkTrial& trial) {
  if (trial.bytes < kStagingPieces * kSmallCopyBytes || trial.bytes % kStagingPieces != 0 ||
      trial.repeats < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a link trial needs at least ", kStagingPieces * kSmallCopyBytes,
                     " bytes, a multiple of ", kStagingPieces, ", and one repeat, got ",
                     trial.bytes, " bytes and ", trial.repeats, " repeats"));
  }
  BLOCKSWAP_ASSIGN_OR_RETURN(Buffers buffers, TakeBuffers(device, trial.bytes));
  absl::StatusOr<LinkMeasurement> measured = MeasureWith(device, trial, buffers);
  WaitForCopies(device).IgnoreError();  // what failed was reported; the buffers go away now
  return measured;
}

LinkProfile ToLinkProfile(const LinkMeasurement& measured) {
  LinkProfile link;
  link.h2d_bytes_per_second = measured.h2d_bytes_per_second;
  link.d2h_bytes_per_second = measured.d2h_bytes_per_second;
  link.pageable_bytes_per_second = measured.pageable_bytes_per_second;
  link.duplex_h2d_bytes_per_second = measured.duplex_h2d_bytes_per_second;
  link.duplex_d2h_bytes_per_second = measured.duplex_d2h_bytes_per_second;
  link.latency = measured.latency;
  return link;
}

}  // namespace blockswap::offload
