// SPDX-License-Identifier: Apache-2.0
#include "worker/data/item_faults.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace blockswap::worker {
namespace {

constexpr size_t kExamples = 3;

const char* TextOf(ItemFault fault) {
  switch (fault) {
    case ItemFault::kNoLatentCache:
      return "without a latent cache";
    case ItemFault::kNoTextCache:
      return "without a text cache";
    case ItemFault::kNoCaption:
      return "without a caption";
    case ItemFault::kStaleCaption:
      return "whose caption is not the one its text cache was made from; make the text caches "
             "again";
    case ItemFault::kTwoSizes:
      return "with latent caches of more than one media size; delete the stale ones";
    case ItemFault::kSizesDisagree:
      return "whose sizes disagree";
    case ItemFault::kUnreadable:
      return "whose cache cannot be read";
    case ItemFault::kOtherArchitecture:
      return "with a cache of another architecture";
    case ItemFault::kNewerFormat:
      return "with a cache of an unknown format version";
    case ItemFault::kWrongContent:
      return "whose cache lacks what the model needs";
    case ItemFault::kControls:
      return "with control latents, which qwen_image without editing does not take";
  }
  return "";
}

}  // namespace

bool FollowsMissingPolicy(ItemFault fault) { return fault <= ItemFault::kUnreadable; }

void ItemFaults::Add(ItemFault fault, const std::string& example) {
  Kind& kind = kinds_[fault];
  ++kind.count;
  if (kind.examples.size() < kExamples) kind.examples.push_back(example);
}

void ItemFaults::Report(MissingPolicy policy, std::vector<std::string>* errors,
                        std::vector<std::string>* warnings) const {
  for (const auto& [fault, kind] : kinds_) {
    const bool skips = policy == MissingPolicy::kSkip && FollowsMissingPolicy(fault);
    const std::string message =
        absl::StrCat(kind.count, kind.count == 1 ? " item " : " items ", TextOf(fault), ": ",
                     absl::StrJoin(kind.examples, "; "),
                     kind.count > static_cast<int64_t>(kind.examples.size()) ? "; ..." : "",
                     skips ? " (skipped)" : "");
    (skips ? warnings : errors)->push_back(message);
  }
}

}  // namespace blockswap::worker
