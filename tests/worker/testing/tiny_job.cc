// SPDX-License-Identifier: Apache-2.0
#include "tests/worker/testing/tiny_job.h"

#include <stdlib.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "tests/worker/data/tiny_checkpoint.h"
#include "worker/io/float_conversion.h"
#include "worker/io/safetensors.h"
#include "worker/kernels/counter_random.h"

namespace blockswap::worker::testing {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSeed = 20260730;
constexpr int64_t kLatentStream = 1000, kTextStream = 100'000, kPromptStream = 200'000;

void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "tiny job: %s\n", status.ToString().c_str());
  std::abort();
}

std::vector<float> RandomValues(int64_t count, int64_t stream) {
  std::vector<float> values(static_cast<size_t>(count));
  CounterRandom({kSeed, 0, stream, RandomPurpose::kTest}).FillNormal(absl::MakeSpan(values));
  return values;
}

absl::Span<const std::byte> Bytes(const std::vector<float>& values) {
  return absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()),
                             values.size() * sizeof(float));
}

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  if (!out.flush()) Require(absl::InternalError("cannot write " + path));
}

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream content;
  content << in.rdbuf();
  return content.str();
}

int64_t CountOf(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

std::map<std::string, std::string> CacheMetadata() {
  return {{"architecture", "qwen_image"}, {"format_version", "1.0.1"}};
}

}  // namespace

TinyJob::TinyJob(const TinyJobOptions& options) : options_(options) {
  std::string pattern = (fs::temp_directory_path() / "blockswap-tiny-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) Require(absl::InternalError("cannot make " + pattern));
  root_ = pattern;
  fs::create_directories(root_ + "/model");
  fs::create_directories(root_ + "/cache");
  WriteModel();
  WriteDataset();
  WriteJobFile();
}

TinyJob::~TinyJob() {
  std::error_code ignored;
  fs::remove_all(root_, ignored);
}

void TinyJob::WriteModel() const {
  QwenImageConfig config;
  config.in_channels = options_.latent_channels * 4;
  config.out_channels = options_.latent_channels;
  config.num_layers = options_.layers;
  config.attention_head_dim = options_.head_dim;
  config.num_attention_heads = options_.heads;
  config.joint_attention_dim = options_.text_features;
  config.axes_dims_rope = options_.rope_axes;
  testing::WriteText(root_ + "/model/config.json", ConfigJson(config));

  const std::vector<TinyTensor> specs = TinyQwenImageTensors(config);
  std::vector<std::vector<float>> held;
  std::vector<TensorToWrite> tensors;
  held.reserve(specs.size());
  std::vector<std::vector<uint8_t>> codes(specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    held.push_back(RandomValues(CountOf(specs[i].shape), static_cast<int64_t>(i)));
    const bool is_norm = specs[i].name.find("norm") != std::string::npos &&
                         specs[i].shape.size() == 1 &&
                         specs[i].name.find("linear") == std::string::npos;
    for (float& value : held.back()) value = is_norm ? 1.0f + 0.1f * value : 0.1f * value;
    if (options_.zero_head && specs[i].name == "proj_out.weight")
      held.back().assign(held.back().size(), 0.0f);
    const bool is_block_linear =
        specs[i].name.find("transformer_blocks.") == 0 && specs[i].shape.size() == 2;
    if (options_.plain_fp8 && is_block_linear) {
      for (const float value : held.back()) codes[i].push_back(NarrowToFloat8E4M3(value));
      tensors.push_back({specs[i].name, StoredType::kF8E4M3, specs[i].shape,
                         absl::MakeConstSpan(reinterpret_cast<const std::byte*>(codes[i].data()),
                                             codes[i].size())});
      continue;
    }
    tensors.push_back({specs[i].name, StoredType::kF32, specs[i].shape, Bytes(held.back())});
  }
  Require(WriteSafetensors(root_ + "/model/diffusion_pytorch_model.safetensors", tensors,
                           {{"format", "pt"}}));
}

std::pair<int64_t, int64_t> TinyJob::LatentSize(int item) const {
  const auto& sizes = options_.latent_sizes;
  if (sizes.empty()) return {options_.latent_height, options_.latent_width};
  return sizes[static_cast<size_t>(item) % sizes.size()];
}

void TinyJob::WriteLatent(int item, const std::vector<float>& values) const {
  const auto [height, width] = LatentSize(item);
  std::map<std::string, std::string> metadata = CacheMetadata();
  metadata["width"] = absl::StrCat(width * 8);
  metadata["height"] = absl::StrCat(height * 8);
  Require(WriteSafetensors(absl::StrFormat("%s/cache/item_%04d_%04dx%04d_qi.safetensors", root_,
                                           item, width * 8, height * 8),
                           {{absl::StrFormat("latents_1x%dx%d_float32", height, width),
                             StoredType::kF32,
                             {options_.latent_channels, 1, height, width},
                             Bytes(values)}},
                           metadata));
}

void TinyJob::WriteText(const std::string& stem, int64_t tokens, int64_t stream) const {
  std::map<std::string, std::string> metadata = CacheMetadata();
  metadata["caption1"] = stem;
  const std::vector<float> values = RandomValues(tokens * options_.text_features, stream);
  Require(WriteSafetensors(root_ + "/" + stem + "_qi_te.safetensors",
                           {{"varlen_vl_embed_float32",
                             StoredType::kF32,
                             {tokens, options_.text_features},
                             Bytes(values)}},
                           metadata));
}

void TinyJob::WriteDataset() const {
  for (int item = 0; item < options_.items; ++item) {
    const auto [height, width] = LatentSize(item);
    WriteLatent(item,
                RandomValues(options_.latent_channels * height * width, kLatentStream + item));
    WriteText(absl::StrFormat("cache/item_%04d", item),
              options_.ragged_text ? 2 + item % 3 : options_.text_tokens, kTextStream + item);
  }
  testing::WriteText(
      root_ + "/tiny.toml",
      absl::StrFormat("[general]\nresolution = [%d, %d]\nbatch_size = %d\nenable_bucket = %s\n\n"
                      "[[datasets]]\ncache_directory = \"%s/cache\"\n",
                      options_.latent_width * 8, options_.latent_height * 8, options_.batch_size,
                      options_.latent_sizes.empty() ? "false" : "true\nbucket_no_upscale = true",
                      root_));
  const std::string size =
      absl::StrFormat("--w %d --h %d", options_.latent_width * 8, options_.latent_height * 8);
  testing::WriteText(root_ + "/prompts.txt",
                     absl::StrCat("one ", size, " --s 3 --d 1\n", "two ", size, " --s 3 --d 2\n"));
  for (int prompt = 0; prompt < 2; ++prompt) {
    WriteText(absl::StrFormat("prompts_%02d", prompt), 3, kPromptStream + prompt);
  }
}

void TinyJob::WriteJobFile() const {
  testing::WriteText(
      job_file(),
      absl::StrFormat(R"(name: tiny
model: {architecture: qwen_image, weights: %s/model, dtype: %s}
dataset: {config: %s/tiny.toml}
network: %s
training:
  max_steps: %d
  learning_rate: 1e-2
  seed: 7
  threads: 1
  timestep_sampling: shift
  discrete_flow_shift: 2.2
memory: {blocks_to_swap: 0, mode: %s}
output: {name: tiny-lora}
device: host
)",
                      root_, options_.dtype, root_,
                      options_.trains_base ? "{type: none}" : "{type: lora, rank: 4, alpha: 4}",
                      options_.max_steps, options_.trains_base ? "exchange" : "h2d_only"));
}

absl::StatusOr<JobInspection> TinyJob::Open(const std::vector<std::string>& overrides) const {
  absl::StatusOr<SpecResult> spec = LoadJobFile(job_file(), overrides, Roots{});
  if (!spec.ok()) return spec.status();
  std::vector<FieldViolation> violations = spec->violations;
  violations.insert(violations.end(), spec->outside_roots.begin(), spec->outside_roots.end());
  if (!violations.empty()) return ViolationsToStatus(violations);
  absl::StatusOr<JobInspection> job = InspectJob(*spec->config, &violations);
  if (!violations.empty()) return ViolationsToStatus(violations);
  return job;
}

void TinyJob::PoisonLatent(int item, float value) const {
  const auto [height, width] = LatentSize(item);
  std::vector<float> values =
      RandomValues(options_.latent_channels * height * width, kLatentStream + item);
  values[values.size() / 2] = value;
  WriteLatent(item, values);
}

RunResult ReadRun(const std::string& output_directory, const std::string& adapter_name) {
  RunResult result;
  const std::string adapter = ReadFile(output_directory + "/" + adapter_name + ".safetensors");
  uint64_t header_bytes = 0;
  if (adapter.size() >= sizeof(header_bytes)) {
    std::memcpy(&header_bytes, adapter.data(), sizeof(header_bytes));
    result.adapter_tensors = adapter.substr(sizeof(header_bytes) + header_bytes);
  }
  std::istringstream lines(ReadFile(output_directory + "/metrics.jsonl"));
  std::string line;
  while (std::getline(lines, line)) {
    const nlohmann::json json = nlohmann::json::parse(line);
    result.steps.push_back(json["step"]);
    result.epochs.push_back(json["epoch"]);
    result.losses.push_back(json["loss"].dump());
    result.rates.push_back(json["learning_rate"].dump());
    result.norms.push_back(json["grad_norm"].dump());
  }
  return result;
}

}  // namespace blockswap::worker::testing
