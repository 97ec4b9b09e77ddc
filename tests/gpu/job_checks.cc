// SPDX-License-Identifier: Apache-2.0
// What needs a whole job: equal bits, memory, the block stack.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "offload/base/status_macros.h"
#include "offload/plan/planner.h"
#include "tests/gpu/gpu_checks.h"
#include "tests/gpu/stack_model.h"
#include "tests/worker/testing/tiny_job.h"
#include "worker/family/base_layout.h"
#include "worker/kernels/torch_boundary.h"
#include "worker/train/device_session.h"
#include "worker/train/loaded_job.h"
#include "worker/train/step_runner.h"

namespace blockswap::gpu {
namespace {

using worker::testing::TinyJob;
using worker::testing::TinyJobOptions;

constexpr int kEqualSteps = 3;
// Allocators round up; on the smallest models that shows.
constexpr double kMemoryTolerance = 1.05;

// One plan of a job, run for some steps.
struct Run {
  std::vector<double> losses, step_seconds;
  std::string parameters;  // bytes of the adapter at the end; none where the base trains
  int64_t predicted_bytes = 0, peak_bytes = 0, h2d_bytes_per_step = 0, gradient_bytes = 0;
  int streamed = 0;
};

std::string BytesOf(const at::Tensor& tensor) {
  const at::Tensor host = tensor.to(at::kCPU).contiguous();
  return std::string(static_cast<const char*>(host.const_data_ptr()),
                     static_cast<size_t>(host.nbytes()));
}

absl::Status RunSteps(worker::StepRunner* runner, worker::LoadedJob* loaded, int steps, Run* run) {
  const int64_t came_down = loaded->swapper().stats().d2h_link_bytes;
  for (int step = 1; step <= steps; ++step) {
    const int64_t before = loaded->swapper().stats().h2d_bytes;
    const absl::Time begin = absl::Now();
    // Update reads the gradient's norm: the step is over when it returns.
    BLOCKSWAP_ASSIGN_OR_RETURN(worker::StepOutcome outcome,
                               runner->ComputeGradients(step, [] { return absl::OkStatus(); }));
    if (outcome.fault == worker::NumericFault::kNone) {
      BLOCKSWAP_RETURN_IF_ERROR(runner->Update(&outcome));
    }
    run->step_seconds.push_back(absl::ToDoubleSeconds(absl::Now() - begin));
    run->losses.push_back(outcome.loss);
    run->h2d_bytes_per_step = loaded->swapper().stats().h2d_bytes - before;
  }
  if (loaded->walk_context().base == nullptr) {
    run->parameters = BytesOf(loaded->adapter().parameters());
    return absl::OkStatus();
  }
  run->gradient_bytes = loaded->swapper().stats().d2h_link_bytes - came_down;
  return loaded->trained().FinishUpdate();
}

absl::StatusOr<Run> RunPlan(const CheckOptions& options, const TinyJob& files,
                            const std::vector<std::string>& overrides, int steps) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const worker::JobInspection job, files.Open(overrides));
  worker::DeviceOptions device;
  device.device = options.device;
  BLOCKSWAP_ASSIGN_OR_RETURN(const auto session, worker::DeviceSession::Open(device));
  BLOCKSWAP_ASSIGN_OR_RETURN(const worker::Machine machine, session->Measure());
  BLOCKSWAP_ASSIGN_OR_RETURN(offload::SwapPlan plan,
                             offload::Plan(worker::MakePlanRequest(job, machine)));
  Run run;
  run.predicted_bytes = plan.prediction.device_bytes;
  run.streamed = plan.num_streamed();
  BLOCKSWAP_RETURN_IF_ERROR(worker::RunContained([&]() -> absl::Status {
    BLOCKSWAP_ASSIGN_OR_RETURN(const std::unique_ptr<worker::LoadedJob> loaded,
                               worker::LoadedJob::Load(&job, std::move(plan), session.get()));
    worker::StepRunner runner(&job, loaded->walk_context(), &loaded->trained());
    return RunSteps(&runner, loaded.get(), steps, &run);
  }));
  run.peak_bytes =
      session->runtime()->ledger().Snapshot().total_peak_bytes + session->framework_bytes_peak();
  return run;
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Temporary files of a check go where there is room for them.
void UseScratch(const CheckOptions& options) {
  if (!options.scratch.empty()) setenv("TMPDIR", options.scratch.c_str(), /*overwrite=*/1);
}

struct NamedPlan {
  const char* name;
  std::vector<std::string> overrides;
};

}  // namespace

absl::StatusOr<Report> CheckEqualBits(const CheckOptions& options) {
  UseScratch(options);
  TinyJobOptions sizes;
  sizes.max_steps = kEqualSteps;
  const TinyJob files(sizes);
  const NamedPlan plans[] = {
      {"resident", {}},
      {"4 streamed, ring of 2", {"memory.blocks_to_swap=4", "memory.ring_size=2"}},
      {"5 streamed, ring of 1", {"memory.blocks_to_swap=5", "memory.ring_size=1"}},
      {"4 streamed, pageable", {"memory.blocks_to_swap=4", "memory.pinned_memory=never"}},
      {"3 exchanged", {"memory.blocks_to_swap=3", "memory.mode=exchange"}},
      {"5 streamed by layer", {"memory.blocks_to_swap=5", "memory.granularity=layer"}},
  };
  Report report;
  report["ok"] = true;
  report["plans"] = Report::array();
  Run reference;
  for (const NamedPlan& plan : plans) {
    BLOCKSWAP_ASSIGN_OR_RETURN(Run run, RunPlan(options, files, plan.overrides, kEqualSteps));
    if (reference.losses.empty()) reference = run;
    const bool equal = run.losses == reference.losses && run.parameters == reference.parameters;
    report["plans"].push_back({{"plan", plan.name}, {"equal", equal}, {"loss", run.losses.back()}});
    if (!equal) report["ok"] = false;
  }
  return report;
}

absl::StatusOr<Report> CheckBaseTraining(const CheckOptions& options) {
  UseScratch(options);
  TinyJobOptions sizes;
  sizes.max_steps = kEqualSteps;
  sizes.trains_base = true;
  const TinyJob files(sizes);
  BLOCKSWAP_ASSIGN_OR_RETURN(const worker::JobInspection job, files.Open({}));
  int64_t expected = 0;
  const std::vector<worker::BaseUnit> units = worker::BaseUnitsOf(job.model);
  for (size_t unit = 0; unit < units.size(); ++unit) {
    const worker::Dtype dtype = unit == 0 ? worker::Dtype::kFloat32 : job.model.dtype;
    expected += kEqualSteps * units[unit].elements * worker::DtypeBytes(dtype);
  }
  const NamedPlan plans[] = {
      {"resident", {"memory.blocks_to_swap=0"}},
      {"4 streamed", {"memory.blocks_to_swap=4"}},
      {"4 streamed, pageable", {"memory.blocks_to_swap=4", "memory.pinned_memory=never"}}};
  Report report;
  report["ok"] = true;
  report["plans"] = Report::array();
  std::vector<double> losses;
  for (const NamedPlan& plan : plans) {
    BLOCKSWAP_ASSIGN_OR_RETURN(const Run run, RunPlan(options, files, plan.overrides, kEqualSteps));
    if (losses.empty()) losses = run.losses;
    report["plans"].push_back({{"plan", plan.name},
                               {"equal", run.losses == losses},
                               {"gradient_bytes", run.gradient_bytes},
                               {"expected_gradient_bytes", expected}});
    if (run.losses != losses || run.gradient_bytes != expected) report["ok"] = false;
  }
  return report;
}

absl::StatusOr<Report> CheckMemory(const CheckOptions& options) {
  UseScratch(options);
  TinyJobOptions sizes;
  if (!options.tiny) {
    sizes.layers = 8;
    sizes.heads = 8;
    sizes.head_dim = 64;
    sizes.rope_axes = {16, 24, 24};
    sizes.latent_height = sizes.latent_width = 64;
  }
  const TinyJob files(sizes);
  Report report;
  report["ok"] = true;
  report["plans"] = Report::array();
  const int64_t half = sizes.layers / 2;
  for (const int64_t streamed : {int64_t{0}, half}) {
    BLOCKSWAP_ASSIGN_OR_RETURN(
        const Run run,
        RunPlan(options, files, {absl::StrCat("memory.blocks_to_swap=", streamed)}, 2));
    report["plans"].push_back(
        {{"streamed", run.streamed},
         {"predicted_bytes", run.predicted_bytes},
         {"peak_bytes", run.peak_bytes},
         {"peak_over_predicted",
          static_cast<double>(run.peak_bytes) / static_cast<double>(run.predicted_bytes)}});
    const double most = kMemoryTolerance * static_cast<double>(run.predicted_bytes);
    if (static_cast<double>(run.peak_bytes) > most) report["ok"] = false;
  }
  return report;
}

absl::StatusOr<Report> CheckStack(const CheckOptions& options) {
  UseScratch(options);
  worker::QwenImageConfig config;  // the published one
  TinyJobOptions sizes;
  sizes.items = sizes.batch_size = 1;
  sizes.ragged_text = false;
  sizes.layers = 1;
  sizes.max_steps = 10;
  if (options.tiny) {
    config.num_layers = 6;
    config.num_attention_heads = 2;
    config.attention_head_dim = 16;
    config.axes_dims_rope = {4, 6, 6};
    config.in_channels = 4;
    config.out_channels = 1;
    config.joint_attention_dim = 12;
  } else {
    sizes.latent_channels = config.out_channels;
    sizes.text_features = config.joint_attention_dim;
    sizes.latent_height = sizes.latent_width = 1024 / 8;
    sizes.text_tokens = 256;
  }
  const TinyJob files(sizes);
  const std::string directory = files.root() + "/stack";
  BLOCKSWAP_ASSIGN_OR_RETURN(const StackModel model, WriteStackModel(config, directory));
  Report report;
  report["blocks"] = config.num_layers;
  report["image_tokens"] = sizes.latent_height * sizes.latent_width / 4;
  report["text_tokens"] = sizes.text_tokens;
  report["model_bytes"] = model.bytes;
  report["weights"] = model.random ? "random" : "zero";
  report["runs"] = Report::array();
  const int64_t swapped = config.num_layers * 2 / 3;
  for (const int64_t streamed : {int64_t{0}, swapped}) {
    const auto run = RunPlan(options, files,
                             {absl::StrCat("model.weights=", directory),
                              absl::StrCat("memory.blocks_to_swap=", streamed)},
                             /*steps=*/4);
    Report row;
    row["swapped"] = streamed;
    if (run.ok()) {
      row["step_seconds"] = Median({run->step_seconds.begin() + 1, run->step_seconds.end()});
      row["h2d_bytes_per_step"] = run->h2d_bytes_per_step;
      row["predicted_bytes"] = run->predicted_bytes;
      row["peak_bytes"] = run->peak_bytes;
    } else if (streamed == 0) {
      row["does_not_fit"] = std::string(run.status().message());  // a small card: expected
    } else {
      return run.status();
    }
    report["runs"].push_back(std::move(row));
  }
  report["ok"] = true;
  return report;
}

}  // namespace blockswap::gpu
