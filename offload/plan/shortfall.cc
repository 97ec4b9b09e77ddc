// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/shortfall.h"

#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace blockswap::offload {
namespace {

constexpr char kShortfallUrl[] = "blockswap/shortfall";

}  // namespace

absl::Status WithShortfall(absl::Status status, const Shortfall& shortfall) {
  status.SetPayload(kShortfallUrl,
                    absl::Cord(absl::StrCat(shortfall.resource, "\n", shortfall.needed_bytes, "\n",
                                            shortfall.available_bytes, "\n", shortfall.would_fit)));
  return status;
}

std::optional<Shortfall> ShortfallOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kShortfallUrl);
  if (!payload.has_value()) return std::nullopt;
  const std::vector<std::string> parts =
      absl::StrSplit(std::string(*payload), absl::MaxSplits('\n', 3));
  Shortfall shortfall;
  if (parts.size() != 4 || !absl::SimpleAtoi(parts[1], &shortfall.needed_bytes) ||
      !absl::SimpleAtoi(parts[2], &shortfall.available_bytes)) {
    return std::nullopt;
  }
  shortfall.resource = parts[0];
  shortfall.would_fit = parts[3];
  return shortfall;
}

}  // namespace blockswap::offload
