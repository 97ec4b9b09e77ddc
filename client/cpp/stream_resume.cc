// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/stream_resume.h"

#include <algorithm>

#include "client/cpp/errors.h"

namespace blockswap::client {
namespace {

constexpr absl::Duration kFirstDelay = absl::Milliseconds(50);
constexpr absl::Duration kLongestDelay = absl::Seconds(2);

}  // namespace

void ResumeBackoff::Reset() {
  last_word_ = absl::Now();
  delay_ = absl::ZeroDuration();
}

absl::Duration ResumeBackoff::NextDelay() {
  delay_ = std::clamp(delay_ * 2, kFirstDelay, kLongestDelay);
  return std::min(delay_, options_.deadline - absl::Now());
}

bool ResumeBackoff::Exhausted() const { return absl::Now() - last_word_ > options_.patience; }

bool IsResumable(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kCancelled:  // by the server; our own cancellation is asked for first
      return true;
    case absl::StatusCode::kResourceExhausted:
      return DetailsOf(status).reason == "SLOW_CONSUMER";
    default:
      return false;
  }
}

}  // namespace blockswap::client
