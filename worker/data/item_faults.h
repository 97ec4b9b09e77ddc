// SPDX-License-Identifier: Apache-2.0
// Collects what is wrong with the items of a data set, kind by kind: a thousand missing files are
// one message with a count.
#ifndef BLOCKSWAP_WORKER_DATA_ITEM_FAULTS_H_
#define BLOCKSWAP_WORKER_DATA_ITEM_FAULTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "worker/config/train_config.h"

namespace blockswap::worker {

// The first group follows dataset.on_missing; the second is a fault whatever the policy, since it
// is never about single items.
enum class ItemFault {
  kNoLatentCache,
  kNoTextCache,
  kNoCaption,
  kStaleCaption,
  kTwoSizes,
  kSizesDisagree,
  kUnreadable,
  kOtherArchitecture,
  kNewerFormat,
  kWrongContent,
  kControls,
};
bool FollowsMissingPolicy(ItemFault fault);

class ItemFaults {
 public:
  void Add(ItemFault fault, const std::string& example);
  // One message a kind: "3 items without a text cache: a, b, c".
  void Report(MissingPolicy policy, std::vector<std::string>* errors,
              std::vector<std::string>* warnings) const;

 private:
  struct Kind {
    int64_t count = 0;
    std::vector<std::string> examples;
  };
  std::map<ItemFault, Kind> kinds_;
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_DATA_ITEM_FAULTS_H_
