// SPDX-License-Identifier: Apache-2.0
// A complete training job on disk, small enough to train in milliseconds: random model, musubi
// caches, prompts, job file.
#ifndef BLOCKSWAP_TESTS_WORKER_TESTING_TINY_JOB_H_
#define BLOCKSWAP_TESTS_WORKER_TESTING_TINY_JOB_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/config/job_inspection.h"
#include "worker/family/family.h"

namespace blockswap::worker::testing {

struct TinyJobOptions {
  int64_t layers = 6, heads = 3, head_dim = 16;
  std::vector<int64_t> rope_axes = {4, 6, 6};  // sum: head_dim
  int64_t latent_channels = 1, text_features = 12;
  int64_t latent_height = 8, latent_width = 8;
  // Items take these heights and widths in turn, each in a bucket of its own; empty: all the above.
  std::vector<std::pair<int64_t, int64_t>> latent_sizes;
  int items = 9, batch_size = 2;
  bool ragged_text = true;  // text of 2, 3 or 4 tokens: batches need masks
  int64_t text_tokens = 4;  // without ragged_text
  int64_t max_steps = 8;
  std::string dtype = "bf16";
  bool plain_fp8 = false;    // the blocks' linears are stored as a cast to fp8 without scales
  bool trains_base = false;  // network.type none instead of an adapter
  bool zero_head = false;    // the output layer's weights are 0: no gradient reaches the adapter
};

// Owns: a temporary directory, removed at the end. Aborts the test program when it cannot be
// written.
class TinyJob {
 public:
  explicit TinyJob(const TinyJobOptions& options = {});
  ~TinyJob();
  TinyJob(const TinyJob&) = delete;
  TinyJob& operator=(const TinyJob&) = delete;

  const std::string& root() const { return root_; }
  std::string job_file() const { return root_ + "/job.yaml"; }
  std::string output(const std::string& name) const { return root_ + "/output-" + name; }

  // The job with "memory.ring_size=1" style overrides applied.
  absl::StatusOr<JobInspection> Open(const std::vector<std::string>& overrides = {}) const;

  // Overwrites the latent cache of item `item` with `value` in one cell.
  void PoisonLatent(int item, float value) const;

 private:
  void WriteModel() const;
  std::pair<int64_t, int64_t> LatentSize(int item) const;  // height, width
  void WriteLatent(int item, const std::vector<float>& values) const;
  void WriteText(const std::string& stem, int64_t tokens, int64_t stream) const;
  void WriteDataset() const;
  void WriteJobFile() const;

  const TinyJobOptions options_;
  std::string root_;
};

// Everything a run leaves that must be equal for every plan: a byte-exact picture of one output
// directory.
struct RunResult {
  std::string adapter_tensors;      // data section of the final adapter file
  std::vector<std::string> losses;  // as printed in metrics.jsonl, one a step
  std::vector<std::string> rates;
  std::vector<std::string> norms;
  std::vector<int64_t> steps, epochs;
};
RunResult ReadRun(const std::string& output_directory,
                  const std::string& adapter_name = "tiny-lora");

}  // namespace blockswap::worker::testing

#endif  // BLOCKSWAP_TESTS_WORKER_TESTING_TINY_JOB_H_
