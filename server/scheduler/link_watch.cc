// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/link_watch.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace blockswap::server {
namespace {

// One direction between two verdicts.
struct Share {
  int64_t bytes = 0, transfers = 0;
  double busy_seconds = 0;
};

// With that much traffic the other way, the rate of both at once is what can be expected.
constexpr double kBothWays = 0.1;

std::string SlowText(const char* where, const Share& copies, double rate, double latency) {
  if (copies.bytes < kBytesOfVerdict || copies.busy_seconds <= 0 || rate <= 0) return "";
  const double expected_seconds =
      static_cast<double>(copies.bytes) / rate + static_cast<double>(copies.transfers) * latency;
  if (expected_seconds >= kSlowCopyShare * copies.busy_seconds) return "";
  return absl::StrFormat(
      "copies %s reach %.1f GB/s while the job runs, the link test measured %.1f: look for other "
      "traffic on the bus, a shared slot or power saving, then measure again",
      where, static_cast<double>(copies.bytes) / copies.busy_seconds / 1e9, rate / 1e9);
}

}  // namespace

std::string LinkWatch::Note(const SwapCounters& now, const MeasuredLink& measured) {
  const Share up{now.h2d_link_bytes - begin_.h2d_link_bytes,
                 now.h2d_transfers - begin_.h2d_transfers,
                 now.h2d_busy_seconds - begin_.h2d_busy_seconds};
  const Share down{now.d2h_link_bytes - begin_.d2h_link_bytes,
                   now.d2h_transfers - begin_.d2h_transfers,
                   now.d2h_busy_seconds - begin_.d2h_busy_seconds};
  if (!begun_ || up.bytes < 0 || down.bytes < 0) {
    begun_ = true;
    begin_ = now;
    return "";
  }
  if (std::max(up.bytes, down.bytes) < kBytesOfVerdict) return "";
  begin_ = now;
  const auto expected = [&](double alone, double together, const Share& copies,
                            const Share& other) {
    const bool both = together > 0 && static_cast<double>(other.bytes) >
                                          kBothWays * static_cast<double>(copies.bytes);
    const double rate = both ? std::min(alone, together) : alone;
    return staged_ && measured.pageable > 0 ? std::min(rate, measured.pageable) : rate;
  };
  const std::string slow_up =
      SlowText("to the device", up, expected(measured.h2d, measured.duplex_h2d, up, down),
               measured.latency_seconds);
  if (!slow_up.empty()) return slow_up;
  return SlowText("from the device", down, expected(measured.d2h, measured.duplex_d2h, down, up),
                  measured.latency_seconds);
}

}  // namespace blockswap::server
