// SPDX-License-Identifier: Apache-2.0
// How far a training run is, in one line for people: as a bar that is drawn over, or as plain text.
#ifndef BLOCKSWAP_PROTO_TEXT_PROGRESS_TEXT_H_
#define BLOCKSWAP_PROTO_TEXT_PROGRESS_TEXT_H_

#include <cstdint>
#include <string>

namespace blockswap::proto {

struct ProgressFigures {
  int64_t step = 0;
  int64_t total_steps = 0;
  double seconds_per_step = 0;  // 0: not known yet
  double eta_seconds = 0;
  double loss = 0;
  std::string device_memory;  // "3.9 MiB"; empty: not known
  double stall_ratio = 0;     // 0 to 1: share of the step that compute waited for blocks
  std::string phase;          // shown unless it is "training"
};

// "step 120/300, 3.2 steps/s, ETA 56s, loss 0.1234, device 3.9 MiB, swap stall 2%".
std::string ProgressLine(const ProgressFigures& figures);

// "[######--------]  40% 120/300 ...", at most `width` characters, ASCII only.
std::string ProgressBar(const ProgressFigures& figures, int width);

// "56s", "4m 05s", "3h 20m", "2d 03h"; "-" when negative or not finite.
std::string FormatSeconds(double seconds);

}  // namespace blockswap::proto

#endif  // BLOCKSWAP_PROTO_TEXT_PROGRESS_TEXT_H_
