// SPDX-License-Identifier: Apache-2.0
// A validated training job as plain values: what the worker trains from and the server plans from.
#ifndef BLOCKSWAP_WORKER_CONFIG_TRAIN_CONFIG_H_
#define BLOCKSWAP_WORKER_CONFIG_TRAIN_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "offload/plan/swap_plan.h"

namespace blockswap::worker {

enum class Dtype { kFloat32, kBFloat16, kFloat16 };
enum class TimestepSampling { kUniform, kSigmoid, kShift, kQwenShift };
enum class ScheduleType { kConstant, kCosine };
enum class NonfinitePolicy { kStop, kSkip };
enum class MissingPolicy { kError, kSkip };
enum class Quantization { kNone, kFp8Scaled };

struct FieldViolation {
  std::string field;        // "memory.ring_size"
  std::string description;  // what is wrong, what is allowed: "must be at least 1, is 0"
};

// Directories below which a spec may name files. An empty root means: any path the process may open
// is allowed and relative paths are relative to the current directory (a person's own
// `blockswap-worker train`).
struct Roots {
  std::string models, datasets, outputs;
};

struct ModelConfig {
  std::string architecture;  // canonical family name; empty: detect
  std::string weights_path;  // absolute
  std::string config_path;   // absolute, or empty
  Dtype dtype = Dtype::kBFloat16;
  Quantization quantization = Quantization::kNone;
};

struct NetworkConfig {
  bool trains_base = false;  // network.type none
  int rank = 16;
  double alpha = 1.0;
  std::vector<std::string> include_patterns, exclude_patterns;
  std::string weights_path;  // absolute, or empty
};

struct AdamWConfig {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
};

struct ScheduleConfig {
  ScheduleType type = ScheduleType::kConstant;
  int64_t warmup_steps = 0;
  double min_lr_ratio = 0;
};

struct TrainingConfig {
  std::optional<int64_t> max_steps, max_epochs;  // at least one is set
  double learning_rate = 1e-4;
  AdamWConfig adamw;
  ScheduleConfig schedule;
  int64_t seed = 42;
  TimestepSampling timestep_sampling = TimestepSampling::kShift;
  double discrete_flow_shift = 1.0, sigmoid_scale = 1.0;
  double min_timestep = 0, max_timestep = 1000;
  int gradient_accumulation_steps = 1;
  double max_grad_norm = 1.0;
  bool gradient_checkpointing = true;
  int threads = 0;  // 0: one less than the free cores, at least 1
  NonfinitePolicy on_nonfinite = NonfinitePolicy::kStop;
  bool musubi_timestep_offset = false;
};

struct MemoryConfig {
  std::optional<int64_t> vram_budget_bytes, host_budget_bytes;
  std::optional<int> blocks_to_swap;
  offload::TransferMode mode = offload::TransferMode::kH2dOnly;
  std::optional<int> ring_size;  // absent: the planner's choice
  offload::PinPolicy pinned_memory = offload::PinPolicy::kAuto;
  offload::Granularity granularity = offload::Granularity::kBlock;
  offload::Toggle activation_offload = offload::Toggle::kAuto;
  offload::Toggle host_modulation = offload::Toggle::kAuto;
  offload::Toggle checkpointing = offload::Toggle::kAuto;
  bool verify_weights = false;
};

struct SamplingConfig {
  int64_t every_steps = 0;
  std::string prompts_path;  // absolute, or empty: no sampling
  std::optional<int> steps;
  std::optional<int64_t> vram_budget_bytes;  // absent: as in training
};

struct OutputConfig {
  std::string name;
  int64_t save_every_steps = 0;
  int keep_checkpoints = 3;
  Dtype save_precision = Dtype::kFloat32;
};

struct TrainConfig {
  std::string name;
  ModelConfig model;
  std::string dataset_config_path;  // absolute
  std::string datasets_root;  // the folders a dataset file names must lie below it; empty: anywhere
  MissingPolicy on_missing = MissingPolicy::kError;
  NetworkConfig network;
  TrainingConfig training;
  MemoryConfig memory;
  SamplingConfig sampling;
  OutputConfig output;
  std::string device = "auto";
  std::string spec_json;  // the job as given, for metadata and for checkpoints
};

struct SpecResult {
  std::optional<TrainConfig> config;          // set when there is no violation
  std::vector<FieldViolation> violations;     // in the order of the schema
  std::vector<FieldViolation> outside_roots;  // paths that leave their root: PERMISSION_DENIED; the
                                              // message never resolves them
};

// One InvalidArgument status whose message lists all violations, one per line "field: description".
absl::Status ViolationsToStatus(const std::vector<FieldViolation>& violations);

// Reads a job file (YAML or JSON), applies `--set path=value` overrides, validates. InvalidArgument
// for what is no job file at all (with line and column); violations are in the result.
absl::StatusOr<SpecResult> LoadJobFile(const std::string& path,
                                       const std::vector<std::string>& overrides,
                                       const Roots& roots);

// The same for the JSON mapping of a JobSpec, as a server hands it to its worker.
absl::StatusOr<SpecResult> LoadJobJson(const std::string& json, const Roots& roots);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_CONFIG_TRAIN_CONFIG_H_
