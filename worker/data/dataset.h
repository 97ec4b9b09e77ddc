// SPDX-License-Identifier: Apache-2.0
// A musubi dataset: its TOML, the index of its cache files from their headers alone, buckets, and
// the order items are seen in.
#ifndef BLOCKSWAP_WORKER_DATA_DATASET_H_
#define BLOCKSWAP_WORKER_DATA_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "offload/base/mutex.h"
#include "worker/config/train_config.h"
#include "worker/family/family.h"

namespace blockswap::worker {

// One training item: a latent cache and its text cache, found to belong together and to fit the
// family.
struct DatasetItem {
  std::string name;  // base name of the media
  std::string latent_path, text_path;
  std::string latent_key, text_key;                         // tensor names inside
  int64_t channels = 0, frames = 1, height = 0, width = 0;  // of the latent
  int64_t text_tokens = 0;
  int bucket = 0;                                    // index into Dataset::buckets
  std::vector<std::vector<int64_t>> control_shapes;  // of control latents: batches never mix them
};

struct Bucket {
  int64_t width = 0, height = 0;  // pixels
  int64_t latent_width = 0, latent_height = 0;
  std::vector<int64_t> items;  // item indices, repeats included
  int batch_size = 1;
};

// A batch: item indices of one bucket.
struct Batch {
  int bucket = 0;
  std::vector<int64_t> items;
};

// declared: items the sources name (without sources: latent caches in the folder). found: latent
// caches of the family in the folders. used: items that train. skipped: declared ones that do not.
struct DatasetCounts {
  int64_t declared = 0, found = 0, used = 0, skipped = 0;
};

// Thread safety: safe, immutable.
class Dataset {
 public:
  // Reads the TOML (errors name line, table, key, what was expected and the nearest valid key),
  // then indexes caches by header only. Violations are appended with field "dataset.config" (and a
  // path inside it); other faults are returned as a status. Directories in the TOML are relative to
  // it; with a `root` that is not empty they must lie below it. With violations the result is an
  // InvalidArgument status.
  static absl::StatusOr<std::shared_ptr<Dataset>> Open(const std::string& toml_path,
                                                       const Family& family,
                                                       const ModelDescription& model,
                                                       MissingPolicy on_missing,
                                                       std::vector<FieldViolation>* violations,
                                                       const std::string& root = "");

  const std::vector<DatasetItem>& items() const { return items_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  const DatasetCounts& counts() const { return counts_; }
  const std::vector<std::string>& warnings() const { return warnings_; }
  int64_t batches_per_epoch() const;
  std::vector<TokenCounts> token_counts(
      const ModelDescription& model) const;  // one per bucket, longest text of the bucket
  std::string datasets_json() const;         // for ss_datasets

  // Batches of epoch `epoch` (from 0), a pure function of (seed, epoch): items shuffled within each
  // bucket, then the batches.
  std::vector<Batch> EpochOrder(int64_t seed, int64_t epoch) const;
  // Batch number `index` counted from the start of training, across epochs.
  Batch BatchAt(int64_t seed, int64_t index) const;

 private:
  Dataset() = default;
  friend class DatasetBuilder;
  std::vector<DatasetItem> items_;
  std::vector<Bucket> buckets_;
  DatasetCounts counts_;
  std::vector<std::string> warnings_;
  std::string datasets_json_;
  // The order of the last epoch asked for: BatchAt would else shuffle a whole epoch for every
  // batch.
  struct EpochCache {
    int64_t seed = 0, epoch = -1;
    std::vector<Batch> order;
  };
  mutable base::Mutex mutex_;
  mutable EpochCache cache_ ABSL_GUARDED_BY(mutex_);
};

// musubi's bucket list for a resolution (facts/musubi.md 3.2): step 16, both orientations, sorted.
// InvalidArgument where the rule gives a zero side.
absl::StatusOr<std::vector<std::pair<int64_t, int64_t>>> BucketResolutions(int64_t width,
                                                                           int64_t height,
                                                                           int64_t step);
// The bucket of an item of the given pixel size.
absl::StatusOr<std::pair<int64_t, int64_t>> NearestBucket(int64_t width, int64_t height,
                                                          int64_t resolution_width,
                                                          int64_t resolution_height, int64_t step,
                                                          bool enable_bucket, bool no_upscale);

// One line of a musubi prompt file (facts/musubi.md 4.6), with the text embedding's cache beside
// it.
struct SamplePrompt {
  std::string text;
  int64_t width = 256, height = 256, steps = 20, seed = 0;
  double flow_shift = 0;  // 0: the job's
  std::string text_cache_path,
      text_key;  // <prompts stem>_<index:02d>_<short name>_te.safetensors beside the prompt file
  int64_t text_tokens = 0;
};
absl::StatusOr<std::vector<SamplePrompt>> ReadSamplePrompts(const std::string& path,
                                                            const Family& family,
                                                            const ModelDescription& model);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_DATA_DATASET_H_
