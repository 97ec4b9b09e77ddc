// SPDX-License-Identifier: Apache-2.0
// Reads musubi's data set TOML and checks it against the schema, every fault with line, key and
// what was expected.
#ifndef BLOCKSWAP_WORKER_DATA_DATASET_FILE_H_
#define BLOCKSWAP_WORKER_DATA_DATASET_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "worker/config/train_config.h"

namespace blockswap::worker {

// One [[datasets]] table with [general] and the defaults filled in. Paths as written.
// Beyond musubi: cache_directory alone, without a source, means every cache of the family in it.
struct DatasetTable {
  int64_t line = 0;
  int64_t width = 960, height = 544;
  std::string caption_extension;
  int batch_size = 1, num_repeats = 1;
  bool enable_bucket = false, bucket_no_upscale = false;
  std::string image_directory, image_jsonl_file, cache_directory;
};

// Appends to `violations` (field "dataset.config.datasets[0].num_repeats"); the tables are only
// meaningful when nothing was appended. `family` is for messages about settings of musubi that it
// cannot use.
std::vector<DatasetTable> ParseDatasetFile(absl::string_view text, const std::string& family,
                                           std::vector<FieldViolation>* violations);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_DATA_DATASET_FILE_H_
