// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/bench_step.h"

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "offload/base/proc_file.h"
#include "offload/base/status_macros.h"
#include "offload/plan/planner.h"
#include "worker/commands/command.h"
#include "worker/kernels/counter_random.h"
#include "worker/kernels/torch_boundary.h"
#include "worker/model/dtype.h"
#include "worker/objective/flow_matching.h"
#include "worker/train/compute_threads.h"
#include "worker/train/failure.h"
#include "worker/train/loaded_job.h"

namespace blockswap::worker {
namespace {

constexpr int64_t kSeed = 1;
constexpr double kLearningRate = 1e-4;
constexpr double kMaxGradNorm = 1.0;
constexpr int kWarmUpSteps = 1;

struct BenchFlags {
  std::string config, weights, dtype = "bf16";
  int64_t tokens_h = 16, tokens_w = 16, text = 32;
  int rank = 16, steps = 5, threads = 0;
};

void AddOptions(CLI::App* app, BenchFlags* flags) {
  app->add_option("--config", flags->config, "config.json of the checkpoint");
  app->add_option("--weights", flags->weights, "checkpoint")->required();
  app->add_option("--tokens-h", flags->tokens_h)->check(CLI::PositiveNumber);
  app->add_option("--tokens-w", flags->tokens_w)->check(CLI::PositiveNumber);
  app->add_option("--text", flags->text, "text tokens")->check(CLI::PositiveNumber);
  app->add_option("--rank", flags->rank)->check(CLI::PositiveNumber);
  app->add_option("--dtype", flags->dtype)->check(CLI::IsMember({"bf16", "fp32"}));
  app->add_option("--steps", flags->steps)->check(CLI::PositiveNumber);
  app->add_option("--threads", flags->threads)->check(CLI::PositiveNumber);
}

absl::StatusOr<JobInspection> Describe(const BenchFlags& flags) {
  JobInspection job;
  job.config.model.dtype = flags.dtype == "fp32" ? Dtype::kFloat32 : Dtype::kBFloat16;
  job.config.network.rank = flags.rank;
  job.config.network.alpha = flags.rank;
  job.config.memory.blocks_to_swap = 0;
  BLOCKSWAP_ASSIGN_OR_RETURN(job.weights, CheckpointSource::Open(flags.weights, flags.config));
  BLOCKSWAP_ASSIGN_OR_RETURN(const Family* family, DetectFamily(*job.weights));
  BLOCKSWAP_ASSIGN_OR_RETURN(job.model, DescribeModel(*family, *job.weights, job.config.model.dtype,
                                                      job.config.model.quantization));
  BLOCKSWAP_ASSIGN_OR_RETURN(job.adapter,
                             SelectAdapterModules(job.model, *family, job.config.network));
  const TokenCounts tokens{flags.tokens_h * flags.tokens_w, flags.text, 1};
  job.profile = family->Profile(job.model, job.adapter, {tokens});
  return job;
}

at::Tensor RandomTensor(std::vector<int64_t> shape, int64_t sample) {
  at::Tensor values = at::empty(shape, at::kFloat);
  CounterRandom({kSeed, 0, sample, RandomPurpose::kNoise})
      .FillNormal(absl::MakeSpan(values.data_ptr<float>(), static_cast<size_t>(values.numel())));
  return values;
}

ModelInputs RandomInputs(const BenchFlags& flags, const ModelDescription& model,
                         at::Tensor* target) {
  const int64_t tokens = flags.tokens_h * flags.tokens_w;
  const int64_t features = model.latent_channels * model.patch * model.patch;
  const at::ScalarType type = ToScalarType(model.dtype);
  ModelInputs inputs;
  inputs.hidden_states_BSC = RandomTensor({1, tokens, features}, 0).to(type);
  inputs.timestep_B = at::full({1}, 0.5, at::kFloat);
  inputs.encoder_hidden_states_BTJ = RandomTensor({1, flags.text, model.text_features}, 1).to(type);
  inputs.img_shapes = {{1, flags.tokens_h, flags.tokens_w}};
  *target = RandomTensor({1, tokens, features}, 2);
  return inputs;
}

absl::Status Step(LoadedJob* loaded, const ModelInputs& inputs, const at::Tensor& target) {
  loaded->trained().ZeroGradients();
  BLOCKSWAP_RETURN_IF_ERROR(loaded->swapper().BeginPass(offload::PassKind::kTraining));
  const LossFunction loss = [&](const at::Tensor& output) -> absl::StatusOr<at::Tensor> {
    return MeanSquaredError(output, target, /*weight=*/1.0).output_gradient_BSF;
  };
  BLOCKSWAP_RETURN_IF_ERROR(
      WalkTraining(loaded->walk_context(), inputs, loss, /*want_hidden_states_grad=*/false, [] {
        return absl::OkStatus();
      }).status());
  BLOCKSWAP_ASSIGN_OR_RETURN(const double norm, loaded->trained().GradientNorm());
  return loaded->trained().Update(norm, kMaxGradNorm, kLearningRate);
}

absl::StatusOr<std::vector<double>> TimeSteps(const BenchFlags& flags) {
  UseThreads(ChooseThreads(flags.threads));
  BLOCKSWAP_ASSIGN_OR_RETURN(const JobInspection job, Describe(flags));
  DeviceOptions host;
  host.device = "host";
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceSession> session,
                             DeviceSession::Open(host));
  BLOCKSWAP_ASSIGN_OR_RETURN(const Machine machine, session->Measure());
  BLOCKSWAP_ASSIGN_OR_RETURN(offload::SwapPlan plan, offload::Plan(MakePlanRequest(job, machine)));
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedJob> loaded,
                             LoadedJob::Load(&job, std::move(plan), session.get()));
  std::vector<double> seconds;
  BLOCKSWAP_RETURN_IF_ERROR(RunContained([&]() -> absl::Status {
    at::Tensor target;
    const ModelInputs inputs = RandomInputs(flags, job.model, &target);
    for (int i = 0; i < kWarmUpSteps + flags.steps; ++i) {
      const absl::Time begin = absl::Now();
      BLOCKSWAP_RETURN_IF_ERROR(Step(loaded.get(), inputs, target));
      if (i >= kWarmUpSteps) seconds.push_back(absl::ToDoubleSeconds(absl::Now() - begin));
    }
    return absl::OkStatus();
  }));
  return seconds;
}

}  // namespace

int RunBenchStep(int argc, char** argv) {
  CLI::App app("times training steps on random inputs", "blockswap-worker bench-step");
  BenchFlags flags;
  AddOptions(&app, &flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageExit;
  }
  const absl::StatusOr<std::vector<double>> seconds = TimeSteps(flags);
  if (!seconds.ok()) {
    PrintFailure(std::string(seconds.status().message()));
    return static_cast<int>(ToExitReport(seconds.status()).code);
  }
  nlohmann::ordered_json line;
  line["step_seconds"] = *seconds;
  line["peak_rss_bytes"] = base::ReadProcBytes("/proc/self/status", "VmHWM").value_or(0);
  std::printf("%s\n", line.dump().c_str());
  return 0;
}

}  // namespace blockswap::worker
