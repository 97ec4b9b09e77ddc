// SPDX-License-Identifier: Apache-2.0
// The trainer's memory: its first plan, the plans that follow while it runs, and what it says when
// memory runs out.
#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "offload/base/byte_size.h"
#include "offload/base/host_facts.h"
#include "offload/base/proc_file.h"
#include "offload/base/status_macros.h"
#include "worker/io/atomic_file.h"
#include "worker/train/failure.h"
#include "worker/train/trainer.h"

namespace blockswap::worker {
namespace {

// Each try gives up about twice as much as the one before, so few of them empty any plan.
constexpr int kTriesToMakeRoom = 8;
// Steps whose mean speed the planner learns; the first of an attempt warms caches up.
constexpr int64_t kStepsToTime = 3;
// A faster plan is worth its copies from here on.
constexpr double kGainToReplan = 0.95;

bool IsOfHostMemory(absl::string_view message) {
  return absl::StrContains(message, "host memory") || absl::StrContains(message, "bad_alloc");
}

bool IsOfDeviceMemory(const absl::Status& status) {
  return absl::IsResourceExhausted(status) && !IsOfHostMemory(status.message());
}

// The same failure with more to say.
absl::Status Extend(const absl::Status& status, const std::string& more) {
  absl::Status extended(status.code(), absl::StrCat(status.message(), more));
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& payload) { extended.SetPayload(url, payload); });
  return extended;
}

// Counters from `before` on; what is no counter stays.
offload::SwapStats Since(const offload::SwapStats& before, offload::SwapStats stats) {
  stats.h2d_bytes -= before.h2d_bytes;
  stats.d2h_bytes -= before.d2h_bytes;
  stats.h2d_transfers -= before.h2d_transfers;
  stats.d2h_transfers -= before.d2h_transfers;
  stats.staged_transfers -= before.staged_transfers;
  stats.h2d_link_bytes -= before.h2d_link_bytes;
  stats.d2h_link_bytes -= before.d2h_link_bytes;
  stats.h2d_busy -= before.h2d_busy;
  stats.d2h_busy -= before.d2h_busy;
  stats.forward_stall -= before.forward_stall;
  stats.backward_stall -= before.backward_stall;
  stats.hits -= before.hits;
  stats.late -= before.late;
  stats.misses -= before.misses;
  return stats;
}

// Absent: no limit.
std::optional<int64_t> LargerBudget(std::optional<int64_t> left, std::optional<int64_t> right) {
  if (!left.has_value() || !right.has_value()) return std::nullopt;
  return std::max(*left, *right);
}

}  // namespace

absl::Status Trainer::MakePlan(offload::SwapPlan* plan) {
  planner_ = std::make_unique<ElasticPlanner>(&job_);
  BLOCKSWAP_ASSIGN_OR_RETURN(planner_->machine(), session_->Measure());
  MeasureFileTier(job_, &planner_->machine());
  absl::StatusOr<offload::SwapPlan> planned = planner_->Make();
  if (!planned.ok()) return WithFailure(planned.status(), ExitCode::kInvalidInput, "WILL_NOT_FIT");
  *plan = *std::move(planned);
  const std::string largest = LargestBatchText(job_);
  if (!largest.empty()) plan->notes.push_back(largest);
  if (options_.edit_plan) options_.edit_plan(plan);
  BLOCKSWAP_RETURN_IF_ERROR(RecordPlan(*plan, "START"));
  log_->Info(absl::StrCat("device ", session_->description(), ", ", threads_, " threads\n",
                          offload::PlanToText(*plan)));
  return absl::OkStatus();
}

absl::Status Trainer::RecordPlan(const offload::SwapPlan& plan, const std::string& reason) {
  plan_changes_.push_back(DescribePlan(plan, counters_.step, reason));
  return WriteFileAtomically(output_->plan_file(), PlanFileText(plan, plan_changes_));
}

absl::Status Trainer::ReserveBoundaries(const offload::SwapPlan& plan) {
  const int64_t away = absl::c_count_if(
      plan.blocks, [](const offload::BlockPlacement& block) { return block.offloads_boundary; });
  if (away == 0) return absl::OkStatus();
  const int64_t together = plan.block_major ? job_.config.training.gradient_accumulation_steps : 1;
  // Of the largest batch, with the padding of two streams; a step that needs more takes more.
  const int64_t each = job_.profile.boundary_bytes / static_cast<int64_t>(plan.blocks.size()) +
                       2 * offload::kTensorAlignment;
  return boundaries_->Reserve(away * together, each);
}

absl::Status Trainer::Adopt(offload::SwapPlan plan, const std::string& reason) {
  if (options_.edit_plan) options_.edit_plan(&plan);
  if (SamePlacement(plan, loaded_->swapper().plan())) return absl::OkStatus();
  session_->ReleaseCached();
  BLOCKSWAP_RETURN_IF_ERROR(ReserveBoundaries(plan));
  BLOCKSWAP_RETURN_IF_ERROR(loaded_->trained().FinishUpdate());
  BLOCKSWAP_RETURN_IF_ERROR(loaded_->swapper().Adopt(plan));
  StartPeaks();
  learned_bytes_ = 0;  // what was learned is in the new prediction
  refused_available_ = -1;
  timing_ = {};
  const absl::Status recorded = RecordPlan(plan, reason);
  if (!recorded.ok()) Warn("DISK_FULL", std::string(recorded.message()));
  log_->Info(absl::StrCat("new plan after step ", counters_.step, " (", reason,
                          "): ", PlanChangeText(plan_changes_.back())));
  reporter_->Replanned({offload::PlanToJson(plan), offload::PlanToText(plan), reason,
                        counters_.step, static_cast<int64_t>(plan_changes_.size()) - 1});
  ReportMemory();
  return absl::OkStatus();
}

void Trainer::RefreshBeyondBudget() {
  const std::optional<int64_t> budget = session_->budget_bytes();
  session_->SetBudget(std::nullopt);  // the job's own budget is no limit of the machine
  session_->Refresh(TransferStats(), &planner_->machine());
  session_->SetBudget(budget);
}

void Trainer::StartPeaks() {
  peak_before_ = std::max(peak_before_, session_->peak_bytes());
  offload::RaisePeaks(session_->runtime()->ledger().Snapshot(), &peaks_before_);
  session_->ResetPeaks();
}

absl::Status Trainer::AdoptUnder(std::optional<int64_t> budget_bytes, offload::SwapPlan plan,
                                 const std::string& reason) {
  const std::optional<int64_t> before = session_->budget_bytes();
  session_->SetBudget(LargerBudget(before, budget_bytes));  // both plans meet in between
  const absl::Status adopted = Adopt(std::move(plan), reason);
  session_->SetBudget(adopted.ok() ? budget_bytes : before);
  return adopted;
}

void Trainer::Replan(const std::string& reason) {
  session_->Refresh(TransferStats(), &planner_->machine());
  absl::StatusOr<offload::SwapPlan> plan = planner_->Make();
  const absl::Status status = plan.ok() ? Adopt(*std::move(plan), reason) : plan.status();
  // A step that really runs out of memory finds a smaller plan then.
  if (!status.ok()) Warn("REPLAN_REFUSED", absl::StrCat(reason, ": ", status.message()));
}

void Trainer::AdjustPlan() {
  if (const std::optional<MemoryConfig> update = reporter_->TakeMemoryUpdate()) {
    ApplyMemoryUpdate(*update);
  }
  const int64_t planned = loaded_->swapper().plan().prediction.device_bytes;
  const int64_t available = session_->AvailableBytes();
  if (planner_->LearnPeak(planned + learned_bytes_, session_->peak_bytes())) {
    learned_bytes_ = session_->peak_bytes() - planned;
    log_->Info(absl::StrCat("the device memory peak of step ", counters_.step, " is ",
                            base::FormatByteSize(session_->peak_bytes()), ", planned ",
                            base::FormatByteSize(planned)));
    Replan("MEASURED_MEMORY");
  }
  if (available < planned && (refused_available_ < 0 || available < refused_available_)) {
    refused_available_ = available;  // what does not fit now does not fit next step either
    log_->Info(absl::StrCat("device memory of this job shrank to ", base::FormatByteSize(available),
                            ", the plan needs ", base::FormatByteSize(planned)));
    Replan("LESS_DEVICE_MEMORY");
  }
  LearnSpeed();
}

void Trainer::NoteStepTime(const StepOutcome& outcome, absl::Duration stall) {
  const bool warm = counters_.step > first_step_;
  if (!warm || outcome.fault != NumericFault::kNone) return;
  timing_.compute += outcome.compute - stall;
  timing_.step += outcome.compute;
  ++timing_.steps;
}

void Trainer::LearnSpeed() {
  if (timing_.steps < kStepsToTime || speed_learned_) return;
  speed_learned_ = true;
  const offload::SwapPlan& now = loaded_->swapper().plan();
  const absl::Duration step = timing_.step / timing_.steps;
  if (!planner_->LearnCompute(now.prediction.compute, timing_.compute / timing_.steps)) return;
  session_->Refresh(TransferStats(), &planner_->machine());
  absl::StatusOr<offload::SwapPlan> plan = planner_->Make();
  if (!plan.ok() || plan->prediction.step <= absl::ZeroDuration()) return;
  if (plan->prediction.step > kGainToReplan * step) return;
  const absl::Status adopted = Adopt(*std::move(plan), "MEASURED_TIME");
  if (!adopted.ok()) Warn("REPLAN_REFUSED", std::string(adopted.message()));
}

void Trainer::ApplyMemoryUpdate(const MemoryConfig& update) {
  const MemoryConfig before = job_.config.memory;
  job_.config.memory = update;
  // What the job computes is no setting of its memory.
  job_.config.memory.host_modulation = before.host_modulation;
  job_.config.memory.verify_weights = before.verify_weights;
  planner_->ForgetLimit();
  RefreshBeyondBudget();
  absl::StatusOr<offload::SwapPlan> plan = planner_->Make();
  const absl::Status status =
      plan.ok() ? AdoptUnder(update.vram_budget_bytes, *std::move(plan), "MEMORY_UPDATED")
                : plan.status();
  if (status.ok()) return;
  job_.config.memory = before;
  Warn("MEMORY_UPDATE_REFUSED",
       absl::StrCat(status.message(), "; training goes on under the old settings"));
}

absl::Status Trainer::WithRoom(absl::FunctionRef<absl::Status()> body) {
  for (int tries = 0;; ++tries) {
    const absl::Status status = body();
    if (!IsOfDeviceMemory(status) || !state_is_whole_ || tries == kTriesToMakeRoom) return status;
    BLOCKSWAP_RETURN_IF_ERROR(MakeRoom(status, tries));
  }
}

absl::Status Trainer::MakeRoom(const absl::Status& exhausted, int tries) {
  session_->ReleaseCached();
  session_->Refresh(TransferStats(), &planner_->machine());
  absl::StatusOr<offload::SwapPlan> smaller =
      planner_->MakeSmaller(loaded_->swapper().plan(), tries);
  if (!smaller.ok()) {
    return Extend(exhausted,
                  absl::StrCat("; no smaller plan exists: ", smaller.status().message()));
  }
  const absl::Status adopted = Adopt(*std::move(smaller), "OUT_OF_MEMORY");
  if (!adopted.ok() && !IsOfDeviceMemory(adopted)) {
    return Extend(exhausted, absl::StrCat("; the plan cannot shrink: ", adopted.message()));
  }
  Warn("OUT_OF_MEMORY",
       absl::StrCat(exhausted.message(), "; the step is repeated under a smaller plan: ",
                    PlanChangeText(plan_changes_.back())));
  return absl::OkStatus();
}

absl::Status Trainer::WithSamplingPlan(absl::FunctionRef<absl::Status()> body) {
  const std::optional<int64_t>& budget = job_.config.sampling.vram_budget_bytes;
  if (!budget.has_value()) return WithRoom(body);
  const offload::SwapPlan training = loaded_->swapper().plan();
  const int64_t learned = learned_bytes_;
  const std::optional<int64_t> training_budget = session_->budget_bytes();
  RefreshBeyondBudget();
  absl::StatusOr<offload::SwapPlan> plan = planner_->MakeWithin(*budget);
  const absl::Status adopted =
      plan.ok() ? AdoptUnder(budget, *std::move(plan), "SAMPLING") : plan.status();
  if (!adopted.ok()) Warn("SAMPLING_BUDGET_REFUSED", std::string(adopted.message()));
  const absl::Status status = WithRoom(body);
  if (!adopted.ok()) return status;
  const absl::Status back = AdoptUnder(training_budget, training, "TRAINING");
  learned_bytes_ = learned;
  // The plan of sampling trains too; a step that finds no memory under it makes room.
  if (!back.ok()) {
    session_->SetBudget(training_budget);
    Warn("REPLAN_REFUSED", std::string(back.message()));
  }
  return status;
}

offload::SwapStats Trainer::TransferStats() const {
  offload::SwapStats stats = loaded_->swapper().stats();
  const BoundaryCounters& moved = boundaries_->counters();
  stats.d2h_bytes += moved.d2h_bytes;
  stats.h2d_bytes += moved.h2d_bytes;
  stats.d2h_transfers += moved.d2h_transfers;
  stats.h2d_transfers += moved.h2d_transfers;
  stats.pinned_bytes += boundaries_->locked_bytes();
  return Since(stats_before_, stats);
}

absl::Status Trainer::ExplainMemory(absl::Status status) {
  if (status.code() != absl::StatusCode::kResourceExhausted) return status;
  if (IsOfHostMemory(status.message())) {
    return WithFailure(std::move(status), ExitCode::kHostOutOfMemory, "HOST_MEMORY_EXHAUSTED");
  }
  if (loaded_ != nullptr) {
    const offload::SwapPlan& plan = loaded_->swapper().plan();
    status = Extend(
        status, absl::StrCat("; in step ", counters_.step + 1, " with ", plan.blocks_to_swap,
                             " blocks swapped, planned ",
                             base::FormatByteSize(plan.prediction.device_bytes), ", peak so far ",
                             base::FormatByteSize(std::max(peak_before_, session_->peak_bytes())),
                             "; raise memory.vram_budget, set memory.blocks_to_swap above ",
                             plan.blocks_to_swap, " or make the dataset's batches smaller"));
  }
  return WithFailure(std::move(status), ExitCode::kDeviceOutOfMemory, "DEVICE_MEMORY_EXHAUSTED");
}

void Trainer::ReportMemory() {
  const offload::SwapPlan& plan = loaded_->swapper().plan();
  const offload::Prediction& planned = plan.prediction;
  const offload::SwapStats stats = loaded_->swapper().stats();
  MemoryReport report;
  report.planned_bytes = {
      {"ring", planned.ring_bytes},           {"resident_blocks", planned.resident_bytes},
      {"edge_weights", planned.edge_bytes},   {"adapter", planned.adapter_bytes},
      {"optimizer", planned.optimizer_bytes}, {"activations", planned.activation_bytes}};
  report.host_planned_bytes = {{"pinned", planned.pinned_bytes},
                               {"pageable", planned.pageable_bytes},
                               {"file", planned.file_bytes},
                               {"activations", planned.boundary_host_bytes}};
  report.allocator = session_->allocator();
  report.measured = session_->runtime()->ledger().Snapshot();
  offload::RaisePeaks(peaks_before_, &report.measured);
  report.host_rss_bytes = base::ReadProcBytes("/proc/self/status", "VmRSS").value_or(0);
  report.host_pinned_bytes = stats.pinned_bytes;
  report.host_master_bytes = stats.host_master_bytes;
  report.host_locked_bytes = base::ReadHostFacts().locked_bytes;
  report.host_shared_bytes = loaded_->shared_bytes();
  report.host_file_bytes = FileTierBytes(plan, job_.profile.blocks);
  report.pinning_fell_back =
      plan.pin_policy != offload::PinPolicy::kNever && stats.pinned_bytes < stats.host_master_bytes;
  if (report.pinning_fell_back && counters_.step == first_step_) {
    Warn("PINNING_FELL_BACK",
         absl::StrCat("host masters are page-locked for ", base::FormatByteSize(stats.pinned_bytes),
                      " of ", base::FormatByteSize(stats.host_master_bytes),
                      "; raise the lock limit (ulimit -l) for faster copies"));
  }
  reporter_->Memory(report);
}

}  // namespace blockswap::worker
