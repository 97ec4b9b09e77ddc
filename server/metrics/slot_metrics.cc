// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/slot_metrics.h"

#include <chrono>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/text/utf8.h"
#include "server/metrics/metric_parts.h"

namespace blockswap::server {
namespace {

// Few buckets: each is a series for every slot.
const prometheus::Histogram::BucketBoundaries kStepSeconds = {0.1, 0.5, 2.5, 12, 60};
const prometheus::Histogram::BucketBoundaries kCheckpointSeconds = {5, 60};

// A restarted worker counts from zero again; a counter of ours never goes down.
double Grown(double now, double before) { return now > before ? now - before : 0; }
double Grown(int64_t now, int64_t before) {
  return now > before ? static_cast<double>(now - before) : 0;
}

}  // namespace

SlotMetrics::SlotMetrics(prometheus::Registry& registry)
    : memory_(registry),
      info_(RegisterGauge(registry, "blockswap_worker_info",
                          "1 for the worker of a slot; the only series that names a job.")),
      heartbeat_(RegisterGauge(registry, "blockswap_worker_heartbeat_timestamp_seconds",
                               "Unix time of the worker's last heartbeat.")),
      blocks_(RegisterGauge(registry, "blockswap_swap_blocks",
                            "Transformer blocks by where they are.")),
      step_(RegisterGauge(registry, "blockswap_train_step", "Last finished optimizer step.")),
      target_steps_(RegisterGauge(registry, "blockswap_train_target_steps",
                                  "Optimizer steps the job will take.")),
      progress_time_(RegisterGauge(registry, "blockswap_train_progress_timestamp_seconds",
                                   "Unix time of the last finished step.")),
      loss_(RegisterGauge(registry, "blockswap_train_loss", "Loss of the last step.")),
      learning_rate_(RegisterGauge(registry, "blockswap_train_learning_rate",
                                   "Learning rate of the last step.")),
      grad_norm_(
          RegisterGauge(registry, "blockswap_train_grad_norm", "Gradient norm of the last step.")),
      achieved_(RegisterGauge(registry, "blockswap_swap_achieved_bytes_per_second",
                              "Rate of the last step's copies while the copy engine was busy.")),
      checkpoint_bytes_(
          RegisterGauge(registry, "blockswap_checkpoint_bytes", "Size of the last checkpoint.")),
      checkpoint_time_(RegisterGauge(registry,
                                     "blockswap_checkpoint_last_success_timestamp_seconds",
                                     "Unix time of the last committed checkpoint.")),
      swap_bytes_(RegisterCounter(registry, "blockswap_swap_bytes_total",
                                  "Bytes of blocks moved over the link.")),
      swap_transfers_(RegisterCounter(registry, "blockswap_swap_transfers_total",
                                      "Block transfers over the link.")),
      swap_busy_(RegisterCounter(registry, "blockswap_swap_busy_seconds_total",
                                 "Time the copy engine was busy.")),
      swap_stall_(RegisterCounter(registry, "blockswap_swap_stall_seconds_total",
                                  "Time compute waited for a block.")),
      prefetch_(RegisterCounter(registry, "blockswap_swap_prefetch_total",
                                "Block acquisitions by whether the block was there.")),
      steps_(RegisterCounter(registry, "blockswap_train_steps_total", "Optimizer steps.")),
      samples_(RegisterCounter(registry, "blockswap_train_samples_total", "Training samples.")),
      tokens_(RegisterCounter(registry, "blockswap_train_tokens_total",
                              "Tokens that went through the blocks.")),
      phase_seconds_(RegisterCounter(registry, "blockswap_train_phase_seconds_total",
                                     "Where the time of training goes.")),
      nonfinite_(RegisterCounter(registry, "blockswap_train_nonfinite_total",
                                 "Values that were not finite.")),
      checkpoint_writes_(
          RegisterCounter(registry, "blockswap_checkpoint_writes_total", "Checkpoints by result.")),
      replans_(RegisterCounter(registry, "blockswap_plan_changes_total",
                               "Plans that took over while a job ran, by reason.")),
      step_duration_(RegisterHistogram(registry, "blockswap_train_step_duration_seconds",
                                       "Duration of optimizer steps.")),
      checkpoint_seconds_(RegisterHistogram(registry, "blockswap_checkpoint_write_seconds",
                                            "Duration of checkpoint writes.")) {
  for (const char* result : {"ok", "failed"}) checkpoint_writes_.Add({{"result", result}});
}

void SlotMetrics::WorkerStarted(const Worker& worker) {
  RemoveInfo(worker.slot);
  live_.WorkerStarted(worker.slot, worker.job, worker.attempt);
  memory_.WorkerStarted(worker.slot);
  base::MutexLock lock(mutex_);
  Slot& slot = slots_[worker.slot];
  slot.last = SwapCounters{};
  slot.worker = worker;
  slot.has_worker = true;
  slot.samples = false;
  slot.info = &info_.Add({{"slot", worker.slot},
                          {"job", proto::ToValidUtf8(worker.job)},
                          {"attempt", absl::StrCat(worker.attempt)},
                          {"gpu", worker.gpu},
                          {"uuid", worker.uuid},
                          {"model", proto::ToValidUtf8(worker.model)}});
  slot.info->Set(1);
}

void SlotMetrics::WorkerEnded(const std::string& slot_name) {
  live_.WorkerEnded(slot_name);
  for (const char* location : {"device", "host", "in_flight"}) {
    blocks_.Add({{"slot", slot_name}, {"location", location}}).Set(0);
  }
  memory_.WorkerEnded(slot_name);
  base::MutexLock lock(mutex_);
  Slot& slot = slots_[slot_name];
  EndSamplingLocked(slot_name, SteadyNow());
  slot.has_worker = false;
  for (prometheus::Gauge* gauge : slot.rates) gauge->Set(0);
}

std::vector<SlotMetrics::Worker> SlotMetrics::Workers() const {
  base::MutexLock lock(mutex_);
  std::vector<Worker> workers;
  for (const auto& [name, slot] : slots_) {
    if (slot.has_worker) workers.push_back(slot.worker);
  }
  return workers;
}

void SlotMetrics::Phase(const std::string& slot_name, const std::string& phase, SteadyTime now) {
  base::MutexLock lock(mutex_);
  EndSamplingLocked(slot_name, now);
  Slot& slot = slots_[slot_name];
  slot.samples = phase == "sampling";
  slot.sampling_since = now;
}

void SlotMetrics::EndSamplingLocked(const std::string& slot_name, SteadyTime now) {
  Slot& slot = slots_[slot_name];
  if (!slot.samples) return;
  slot.samples = false;
  phase_seconds_.Add({{"slot", slot_name}, {"phase", "sample"}})
      .Increment(std::chrono::duration<double>(now - slot.sampling_since).count());
}

void SlotMetrics::RemoveInfo(const std::string& slot_name) {
  base::MutexLock lock(mutex_);
  Slot& slot = slots_[slot_name];
  if (slot.info != nullptr) info_.Remove(slot.info);
  slot.info = nullptr;
}

void SlotMetrics::Heartbeat(const std::string& slot, double unix_seconds) {
  heartbeat_.Add({{"slot", slot}}).Set(unix_seconds);
}

void SlotMetrics::Ready(const std::string& slot, int64_t start_step, int64_t total_steps) {
  step_.Add({{"slot", slot}}).Set(static_cast<double>(start_step));
  target_steps_.Add({{"slot", slot}}).Set(static_cast<double>(total_steps));
}

void SlotMetrics::AddSwap(const std::string& slot, const SwapCounters& now) {
  SwapCounters& last = slots_[slot].last;
  const auto add = [&slot](auto& family, const char* label, const char* value, double amount) {
    family.Add({{"slot", slot}, {label, value}}).Increment(amount);
  };
  const auto add_blocks = [&](const char* direction, double bytes, double transfers) {
    add(swap_bytes_, "direction", direction, bytes);
    add(swap_transfers_, "direction", direction, transfers);
  };
  add_blocks("h2d", Grown(now.h2d_bytes, last.h2d_bytes),
             Grown(now.h2d_transfers, last.h2d_transfers));
  add(swap_busy_, "direction", "h2d", Grown(now.h2d_busy_seconds, last.h2d_busy_seconds));
  // Frozen weights never go down: no series that would be 0 for ever. Gradients of a base that
  // trains and saved inputs are no blocks, but keep the engine busy.
  if (now.d2h_bytes > 0) {
    add_blocks("d2h", Grown(now.d2h_bytes, last.d2h_bytes),
               Grown(now.d2h_transfers, last.d2h_transfers));
  }
  if (now.d2h_link_bytes > 0) {
    add(swap_busy_, "direction", "d2h", Grown(now.d2h_busy_seconds, last.d2h_busy_seconds));
  }
  add(swap_stall_, "pass", "forward", Grown(now.forward_stall_seconds, last.forward_stall_seconds));
  add(swap_stall_, "pass", "backward",
      Grown(now.backward_stall_seconds, last.backward_stall_seconds));
  add(prefetch_, "result", "hit", Grown(now.hits, last.hits));
  add(prefetch_, "result", "late", Grown(now.late, last.late));
  add(prefetch_, "result", "miss", Grown(now.misses, last.misses));
  std::set<prometheus::Gauge*>& rates = slots_[slot].rates;
  const auto achieve = [&](const char* direction, int64_t bytes, double busy_seconds) {
    if (bytes <= 0 || busy_seconds <= 0) return;
    prometheus::Gauge& rate = achieved_.Add({{"slot", slot}, {"direction", direction}});
    rate.Set(static_cast<double>(bytes) / busy_seconds);
    rates.insert(&rate);  // nothing of it without a worker
  };
  achieve("h2d", now.h2d_link_bytes - last.h2d_link_bytes,
          now.h2d_busy_seconds - last.h2d_busy_seconds);
  achieve("d2h", now.d2h_link_bytes - last.d2h_link_bytes,
          now.d2h_busy_seconds - last.d2h_busy_seconds);
  last = now;
  blocks_.Add({{"slot", slot}, {"location", "device"}}).Set(now.blocks_on_device);
  blocks_.Add({{"slot", slot}, {"location", "host"}}).Set(now.blocks_on_host);
  blocks_.Add({{"slot", slot}, {"location", "in_flight"}}).Set(now.blocks_in_flight);
}

void SlotMetrics::Step(const std::string& slot, const WorkerStep& step, double unix_seconds) {
  live_.Step(slot, step, absl::FromUnixMicros(static_cast<int64_t>(unix_seconds * 1e6)));
  const prometheus::Labels labels = {{"slot", slot}};
  steps_.Add(labels).Increment();
  samples_.Add(labels).Increment(static_cast<double>(step.samples));
  if (step.tokens > 0) tokens_.Add(labels).Increment(static_cast<double>(step.tokens));
  step_.Add(labels).Set(static_cast<double>(step.step));
  progress_time_.Add(labels).Set(unix_seconds);
  loss_.Add(labels).Set(step.loss);
  learning_rate_.Add(labels).Set(step.learning_rate);
  grad_norm_.Add(labels).Set(step.grad_norm);
  step_duration_.Add(labels, kStepSeconds).Observe(step.seconds);
  if (!std::isfinite(step.loss)) Nonfinite(slot, "loss");
  if (!std::isfinite(step.grad_norm)) Nonfinite(slot, "grad");
  for (const char* phase :
       {"data", "forward", "backward", "optimizer", "modulation_wait", "other"}) {
    const auto found = step.phase_seconds.find(phase);
    if (found == step.phase_seconds.end()) continue;
    phase_seconds_.Add({{"slot", slot}, {"phase", phase}}).Increment(Grown(found->second, 0.0));
  }
  if (step.device_bytes_peak > 0) memory_.Peak(slot, step.device_bytes_peak);
  base::MutexLock lock(mutex_);
  AddSwap(slot, step.swap);
}

void SlotMetrics::Memory(const std::string& slot, const MemoryUpdate& memory) {
  live_.Memory(slot, memory, absl::Now());
  memory_.Report(slot, memory);
}

void SlotMetrics::CheckpointWritten(const std::string& slot, int64_t bytes, double seconds,
                                    double unix_seconds) {
  checkpoint_writes_.Add({{"result", "ok"}}).Increment();
  checkpoint_bytes_.Add({{"slot", slot}}).Set(static_cast<double>(bytes));
  checkpoint_seconds_.Add({{"slot", slot}}, kCheckpointSeconds).Observe(seconds);
  checkpoint_time_.Add({{"slot", slot}}).Set(unix_seconds);
  phase_seconds_.Add({{"slot", slot}, {"phase", "checkpoint"}}).Increment(Grown(seconds, 0.0));
}

void SlotMetrics::CheckpointFailed() { checkpoint_writes_.Add({{"result", "failed"}}).Increment(); }

void SlotMetrics::Replanned(const std::string& slot, const std::string& reason) {
  constexpr const char* kReasons[] = {
      "MEMORY_UPDATED", "MEASURED_MEMORY", "MEASURED_TIME", "LESS_DEVICE_MEMORY",
      "OUT_OF_MEMORY",  "SAMPLING",        "TRAINING"};
  const char* label = "OTHER";
  for (const char* known : kReasons) {
    if (reason == known) label = known;
  }
  replans_.Add({{"slot", slot}, {"reason", label}}).Increment();
}

void SlotMetrics::Nonfinite(const std::string& slot, const char* where) {
  nonfinite_.Add({{"slot", slot}, {"where", where}}).Increment();
}

}  // namespace blockswap::server
