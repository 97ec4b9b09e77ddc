// SPDX-License-Identifier: Apache-2.0
// The keys of musubi's data set TOML: where each may stand, what it takes, and whether it means
// anything here.
#ifndef BLOCKSWAP_WORKER_DATA_DATASET_SCHEMA_H_
#define BLOCKSWAP_WORKER_DATA_DATASET_SCHEMA_H_

#include <string>
#include <vector>

#include "absl/types/span.h"

namespace blockswap::worker {

enum class KeyType { kCount, kText, kFlag, kResolution, kUnread };
enum class KeyPlace { kAnywhere, kDatasetOnly };

struct KeyRule {
  const char* name;
  KeyType type;
  KeyPlace place;
  const char* unavailable;  // why musubi's key is refused here; null: it is used
};

absl::Span<const KeyRule> DatasetKeys();
const KeyRule* FindKey(const std::string& name);
// Names that may stand in [general], or in [[datasets]].
std::vector<std::string> KeysOf(bool general);
// "a whole number of at least 1", ...
const char* ExpectedOf(KeyType type);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_DATA_DATASET_SCHEMA_H_
