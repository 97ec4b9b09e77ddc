// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/inspect.h"

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "offload/base/byte_size.h"
#include "offload/base/status_macros.h"
#include "worker/commands/report_command.h"
#include "worker/family/family.h"
#include "worker/io/checkpoint_source.h"
#include "worker/io/json_text.h"

namespace blockswap::worker {
namespace {

using Json = nlohmann::ordered_json;

std::string Text(absl::string_view view) { return std::string(view.data(), view.size()); }

Json StoredTypes(const CheckpointSource& source) {
  std::map<std::string, std::pair<int64_t, int64_t>> by_type;  // tensors, bytes
  for (const auto& [name, tensor] : source.tensors()) {
    auto& [tensors, bytes] = by_type[Text(StoredTypeName(tensor.entry.type))];
    ++tensors;
    bytes += tensor.entry.bytes;
  }
  Json types = Json::object();
  for (const auto& [type, count] : by_type)
    types[type] = {{"tensors", count.first}, {"bytes", count.second}};
  return types;
}

// Paths below the block, in the family's order, with the shape of the weight.
Json AdapterTargets(const DescribedBlock& block) {
  Json targets = Json::array();
  for (const AdapterTarget& target : block.linears) {
    targets.push_back({{"path", target.path.substr(block.name.size() + 1)},
                       {"in_features", target.in_features},
                       {"out_features", target.out_features}});
  }
  return targets;
}

// `quantised`: the same model as model.quantization: fp8_scaled would have it.
Json Blocks(const ModelDescription& model, const ModelDescription& quantised,
            const CheckpointSource& source) {
  int64_t bytes = 0, parameters = 0;
  for (const TensorSpec& tensor : model.blocks.front().tensors) {
    const TensorEntry& entry = source.tensors().at(tensor.name).entry;
    bytes += entry.bytes;
    parameters += entry.bytes / StoredTypeBytes(entry.type);
  }
  return {{"count", model.blocks.size()},
          {"max_blocks_to_swap", model.max_blocks_to_swap},
          {"parameters_each", parameters},
          {"stored_bytes_each", bytes},
          {"packed_bytes_each_bf16", PackBlock(model.blocks.front(), Dtype::kBFloat16).bytes},
          {"packed_bytes_each_fp32", PackBlock(model.blocks.front(), Dtype::kFloat32).bytes},
          {"packed_bytes_each_fp8_scaled",
           PackBlock(quantised.blocks.front(), Dtype::kBFloat16).bytes}};
}

std::string Table(const Json& report) {
  const auto bytes = [](const Json& value) { return base::FormatByteSize(value.get<int64_t>()); };
  std::string text = absl::StrCat("family      ", report["family"].get<std::string>(), "\n");
  absl::StrAppend(&text, "file        ", report["path"].get<std::string>(), ", ",
                  report["tensors"].get<int64_t>(), " tensors, ", bytes(report["bytes"]), "\n");
  for (const auto& [type, count] : report["stored_types"].items()) {
    absl::StrAppend(&text, "            ", type, ": ", count["tensors"].get<int64_t>(),
                    " tensors, ", bytes(count["bytes"]), "\n");
  }
  absl::StrAppend(&text, "quantised   ", report["quantization"].get<std::string>(), "\n");
  const Json& blocks = report["blocks"];
  absl::StrAppend(&text, "blocks      ", blocks["count"].get<int64_t>(), ", up to ",
                  blocks["max_blocks_to_swap"].get<int64_t>(), " swapped, ",
                  bytes(blocks["stored_bytes_each"]), " each\n");
  for (const auto& [key, value] : report["config"].items())
    absl::StrAppend(&text, "config      ", key, " ", value.dump(), "\n");
  for (const Json& target : report["adapter_targets_per_block"]) {
    absl::StrAppend(&text, "adapter on  ", target["path"].get<std::string>(), " [",
                    target["out_features"].get<int64_t>(), ", ",
                    target["in_features"].get<int64_t>(), "]\n");
  }
  return text;
}

}  // namespace

absl::StatusOr<nlohmann::ordered_json> InspectCheckpoint(const std::string& weights,
                                                         const std::string& config) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::shared_ptr<CheckpointSource> source,
                             CheckpointSource::Open(weights, config));
  BLOCKSWAP_ASSIGN_OR_RETURN(const Family* family, DetectFamily(*source));
  BLOCKSWAP_ASSIGN_OR_RETURN(
      const ModelDescription model,
      DescribeModel(*family, *source, Dtype::kBFloat16, Quantization::kNone));
  const QwenImageConfig& qwen = model.qwen_image;
  Json report;
  report["family"] = model.family;
  report["path"] = source->path();
  report["stripped_prefix"] = source->stripped_prefix();
  report["tensors"] = source->tensors().size();
  report["bytes"] = source->total_bytes();
  report["stored_types"] = StoredTypes(*source);
  report["config"] = {{"patch_size", qwen.patch_size},
                      {"in_channels", qwen.in_channels},
                      {"out_channels", qwen.out_channels},
                      {"num_layers", qwen.num_layers},
                      {"attention_head_dim", qwen.attention_head_dim},
                      {"num_attention_heads", qwen.num_attention_heads},
                      {"joint_attention_dim", qwen.joint_attention_dim},
                      {"axes_dims_rope", qwen.axes_dims_rope},
                      {"zero_cond_t", qwen.zero_cond_t}};
  report["quantization"] =
      model.quantization == Quantization::kNone ? "none" : QuantizationText(model);
  BLOCKSWAP_ASSIGN_OR_RETURN(
      const ModelDescription quantised,
      DescribeModel(*family, *source, Dtype::kBFloat16, Quantization::kFp8Scaled));
  report["blocks"] = Blocks(model, quantised, *source);
  report["adapter_targets_per_block"] = AdapterTargets(model.blocks.front());
  return report;
}

int RunInspect(int argc, char** argv) {
  std::string weights, config;
  CLI::App app("Says what a checkpoint is, from its header alone.", "blockswap-worker inspect");
  app.add_option("FILE", weights, "safetensors file, index, or model directory")->required();
  app.add_option("--config", config, "config.json, where the weights bring none");
  return RunReportCommand(
      "inspect", &app, argc, argv, [&] { return InspectCheckpoint(weights, config); }, Table);
}

}  // namespace blockswap::worker
