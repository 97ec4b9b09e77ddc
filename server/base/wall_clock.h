// SPDX-License-Identifier: Apache-2.0
// Time stamps for people and records; durations are measured with steady_clock, which does not
// jump.
#ifndef BLOCKSWAP_SERVER_BASE_WALL_CLOCK_H_
#define BLOCKSWAP_SERVER_BASE_WALL_CLOCK_H_

#include <chrono>
#include <cstdint>

namespace blockswap::server {

using SteadyTime = std::chrono::steady_clock::time_point;

inline SteadyTime SteadyNow() { return std::chrono::steady_clock::now(); }

// Microseconds since 1970.
inline int64_t WallMicros() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

inline std::chrono::microseconds ToMicros(double seconds) {
  return std::chrono::microseconds(static_cast<int64_t>(seconds * 1e6));
}

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_BASE_WALL_CLOCK_H_
