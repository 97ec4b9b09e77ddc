// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <string>

#include "worker/commands/command_exit.h"
#include "worker/commands/probe.h"

namespace blockswap::worker {
namespace {

// The words of each choice are copied into its option.
void AddOptions(CLI::App& app, ProbeOptions& options) {
  const std::map<std::string, Dtype> dtypes = {{"fp32", Dtype::kFloat32},
                                               {"bf16", Dtype::kBFloat16}};
  const std::map<std::string, Quantization> quantizations = {
      {"none", Quantization::kNone}, {"fp8_scaled", Quantization::kFp8Scaled}};
  const std::map<std::string, offload::TransferMode> modes = {
      {"h2d_only", offload::TransferMode::kH2dOnly},
      {"exchange", offload::TransferMode::kExchange}};
  const std::map<std::string, offload::Granularity> granularities = {
      {"block", offload::Granularity::kBlock}, {"layer", offload::Granularity::kLayer}};
  const std::map<std::string, offload::PinPolicy> pin_policies = {
      {"auto", offload::PinPolicy::kAuto},
      {"required", offload::PinPolicy::kRequired},
      {"never", offload::PinPolicy::kNever}};
  app.add_option("--weights", options.weights, "safetensors file, index, or model directory")
      ->required();
  app.add_option("--config", options.config, "config.json, where the weights bring none");
  app.add_option("--inputs", options.inputs, "safetensors file with the input tensors")->required();
  app.add_option("--outputs", options.outputs, "safetensors file to write")->required();
  app.add_option("--adapter", options.adapter, "LoRA file");
  app.add_option("--architecture", options.architecture, "family name; detected when absent");
  app.add_option("--dtype", options.dtype, "fp32 or bf16")
      ->transform(CLI::Transformer(dtypes))
      ->option_text("TYPE");
  app.add_option("--quantization", options.quantization, "none or fp8_scaled, made while reading")
      ->transform(CLI::Transformer(quantizations))
      ->option_text("FORM");
  app.add_option("--blocks_to_swap", options.blocks_to_swap, "blocks that wait on the host")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--ring_size", options.ring_size, "device slots they share")
      ->check(CLI::PositiveNumber);
  app.add_option("--mode", options.mode, "h2d_only or exchange")
      ->transform(CLI::Transformer(modes))
      ->option_text("MODE");
  app.add_option("--granularity", options.granularity, "block or layer")
      ->transform(CLI::Transformer(granularities))
      ->option_text("UNIT");
  app.add_option("--pinned_memory", options.pin_policy, "auto, required or never")
      ->transform(CLI::Transformer(pin_policies))
      ->option_text("POLICY");
  app.add_option("--fp8_weights", options.fp8_weights, "also write codes and scales of this block")
      ->option_text("BLOCK");
  app.add_option("--host_modulation", options.host_modulation,
                 "on or off: modulation is evaluated on the host")
      ->transform(CLI::Transformer(std::map<std::string, bool>{{"on", true}, {"off", false}}))
      ->option_text("SWITCH");
  auto* const grad =
      app.add_flag("--grad", options.gradients, "also run backward from the input grad_output");
  app.add_flag("--weight_grad", options.weight_gradients,
               "with --grad: write the gradient of every base weight, too")
      ->needs(grad);
}

}  // namespace

int RunProbe(int argc, char** argv) {
  ProbeOptions options;
  CLI::App app("Runs one forward (and backward) pass of a checkpoint and writes what comes out.",
               "blockswap-worker probe");
  AddOptions(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return FinishCommand("probe", absl::InvalidArgumentError(error.what()));
  }
  const absl::StatusOr<std::string> report = Probe(options);
  if (report.ok()) std::printf("%s\n", report->c_str());
  return FinishCommand("probe", report.status());
}

}  // namespace blockswap::worker
