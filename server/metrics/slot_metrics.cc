// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/slot_metrics.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace blockswap::server {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;

const prometheus::Histogram::BucketBoundaries kStepSeconds = {0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1,
                                                              2,    5,    10,   20,  50,  120};
const prometheus::Histogram::BucketBoundaries kCheckpointSeconds = {0.01, 0.05, 0.2, 1,
                                                                    5,    20,   60,  300};

prometheus::Family<prometheus::Gauge>& Gauge(prometheus::Registry& registry, const char* name,
                                             const char* help) {
  return BuildGauge().Name(name).Help(help).Register(registry);
}
prometheus::Family<prometheus::Counter>& Counter(prometheus::Registry& registry, const char* name,
                                                 const char* help) {
  return BuildCounter().Name(name).Help(help).Register(registry);
}

// A restarted worker counts from zero again; a counter of ours never goes down.
double Grown(double now, double before) { return now > before ? now - before : 0; }
double Grown(int64_t now, int64_t before) {
  return now > before ? static_cast<double>(now - before) : 0;
}

}  // namespace

SlotMetrics::SlotMetrics(prometheus::Registry& registry)
    : info_(Gauge(registry, "blockswap_worker_info",
                  "1 for the worker of a slot; the only series that names a job.")),
      heartbeat_(Gauge(registry, "blockswap_worker_heartbeat_timestamp_seconds",
                       "Unix time of the worker's last heartbeat.")),
      device_memory_(Gauge(registry, "blockswap_worker_device_memory_bytes",
                           "Device memory the worker has allocated, by purpose.")),
      device_peak_(Gauge(registry, "blockswap_worker_device_memory_peak_bytes",
                         "Peak device memory of the attempt, by purpose.")),
      plan_(Gauge(registry, "blockswap_worker_memory_plan_bytes",
                  "Memory the plan predicts, by place and purpose.")),
      budget_(Gauge(registry, "blockswap_worker_device_memory_budget_bytes",
                    "Device memory the worker may use.")),
      host_memory_(Gauge(registry, "blockswap_worker_host_memory_bytes",
                         "Host memory of the worker, by kind.")),
      blocks_(Gauge(registry, "blockswap_swap_blocks", "Transformer blocks by where they are.")),
      step_(Gauge(registry, "blockswap_train_step", "Last finished optimizer step.")),
      target_steps_(
          Gauge(registry, "blockswap_train_target_steps", "Optimizer steps the job will take.")),
      progress_time_(Gauge(registry, "blockswap_train_progress_timestamp_seconds",
                           "Unix time of the last finished step.")),
      loss_(Gauge(registry, "blockswap_train_loss", "Loss of the last step.")),
      learning_rate_(
          Gauge(registry, "blockswap_train_learning_rate", "Learning rate of the last step.")),
      grad_norm_(Gauge(registry, "blockswap_train_grad_norm", "Gradient norm of the last step.")),
      pin_fallback_(Gauge(registry, "blockswap_worker_pin_fallback",
                          "1 when host memory could not be locked and copies are staged.")),
      achieved_(Gauge(registry, "blockswap_swap_achieved_bytes_per_second",
                      "Rate of the last step's block copies while the copy engine was busy.")),
      checkpoint_bytes_(
          Gauge(registry, "blockswap_checkpoint_bytes", "Size of the last checkpoint.")),
      checkpoint_time_(Gauge(registry, "blockswap_checkpoint_last_success_timestamp_seconds",
                             "Unix time of the last committed checkpoint.")),
      swap_bytes_(
          Counter(registry, "blockswap_swap_bytes_total", "Bytes of blocks moved over the link.")),
      swap_transfers_(
          Counter(registry, "blockswap_swap_transfers_total", "Block transfers over the link.")),
      swap_busy_(
          Counter(registry, "blockswap_swap_busy_seconds_total", "Time the copy engine was busy.")),
      swap_stall_(Counter(registry, "blockswap_swap_stall_seconds_total",
                          "Time compute waited for a block.")),
      prefetch_(Counter(registry, "blockswap_swap_prefetch_total",
                        "Block acquisitions by whether the block was there.")),
      steps_(Counter(registry, "blockswap_train_steps_total", "Optimizer steps.")),
      samples_(Counter(registry, "blockswap_train_samples_total", "Training samples.")),
      phase_seconds_(Counter(registry, "blockswap_train_phase_seconds_total",
                             "Where the time of a step goes.")),
      nonfinite_(
          Counter(registry, "blockswap_train_nonfinite_total", "Values that were not finite.")),
      checkpoint_writes_(
          Counter(registry, "blockswap_checkpoint_writes_total", "Checkpoints by result.")),
      replans_(Counter(registry, "blockswap_plan_changes_total",
                       "Plans that took over while a job ran, by reason.")),
      step_duration_(BuildHistogram()
                         .Name("blockswap_train_step_duration_seconds")
                         .Help("Duration of optimizer steps.")
                         .Register(registry)),
      checkpoint_seconds_(BuildHistogram()
                              .Name("blockswap_checkpoint_write_seconds")
                              .Help("Duration of checkpoint writes.")
                              .Register(registry)) {}

void SlotMetrics::WorkerStarted(const Worker& worker) {
  RemoveInfo(worker.slot);
  base::MutexLock lock(mutex_);
  Slot& slot = slots_[worker.slot];
  slot.last = SwapCounters{};
  for (prometheus::Gauge* peak : slot.peaks) peak->Set(0);
  slot.info = &info_.Add({{"slot", worker.slot},
                          {"job", worker.job},
                          {"attempt", absl::StrCat(worker.attempt)},
                          {"gpu", worker.gpu},
                          {"uuid", worker.uuid},
                          {"model", worker.model}});
  slot.info->Set(1);
}

void SlotMetrics::WorkerEnded(const std::string& slot) {
  for (const char* location : {"device", "host", "in_flight"}) {
    blocks_.Add({{"slot", slot}, {"location", location}}).Set(0);
  }
  base::MutexLock lock(mutex_);
  for (prometheus::Gauge* gauge : slots_[slot].memory) gauge->Set(0);
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
  add(swap_bytes_, "direction", "h2d", Grown(now.h2d_bytes, last.h2d_bytes));
  add(swap_bytes_, "direction", "d2h", Grown(now.d2h_bytes, last.d2h_bytes));
  add(swap_transfers_, "direction", "h2d", Grown(now.h2d_transfers, last.h2d_transfers));
  add(swap_transfers_, "direction", "d2h", Grown(now.d2h_transfers, last.d2h_transfers));
  add(swap_busy_, "direction", "h2d", Grown(now.h2d_busy_seconds, last.h2d_busy_seconds));
  add(swap_busy_, "direction", "d2h", Grown(now.d2h_busy_seconds, last.d2h_busy_seconds));
  add(swap_stall_, "pass", "forward", Grown(now.forward_stall_seconds, last.forward_stall_seconds));
  add(swap_stall_, "pass", "backward",
      Grown(now.backward_stall_seconds, last.backward_stall_seconds));
  add(prefetch_, "result", "hit", Grown(now.hits, last.hits));
  add(prefetch_, "result", "late", Grown(now.late, last.late));
  add(prefetch_, "result", "miss", Grown(now.misses, last.misses));
  const auto achieve = [&](const char* direction, int64_t bytes, double busy_seconds) {
    if (bytes <= 0 || busy_seconds <= 0) return;
    prometheus::Gauge& rate = achieved_.Add({{"slot", slot}, {"direction", direction}});
    rate.Set(static_cast<double>(bytes) / busy_seconds);
    slots_[slot].memory.insert(&rate);  // nothing of it without a worker
  };
  achieve("h2d", now.h2d_bytes - last.h2d_bytes, now.h2d_busy_seconds - last.h2d_busy_seconds);
  achieve("d2h", now.d2h_bytes - last.d2h_bytes, now.d2h_busy_seconds - last.d2h_busy_seconds);
  last = now;
  blocks_.Add({{"slot", slot}, {"location", "device"}}).Set(now.blocks_on_device);
  blocks_.Add({{"slot", slot}, {"location", "host"}}).Set(now.blocks_on_host);
  blocks_.Add({{"slot", slot}, {"location", "in_flight"}}).Set(now.blocks_in_flight);
}

void SlotMetrics::Step(const std::string& slot, const WorkerStep& step, double unix_seconds) {
  const prometheus::Labels labels = {{"slot", slot}};
  steps_.Add(labels).Increment();
  samples_.Add(labels).Increment(static_cast<double>(step.samples));
  step_.Add(labels).Set(static_cast<double>(step.step));
  progress_time_.Add(labels).Set(unix_seconds);
  loss_.Add(labels).Set(step.loss);
  learning_rate_.Add(labels).Set(step.learning_rate);
  grad_norm_.Add(labels).Set(step.grad_norm);
  step_duration_.Add(labels, kStepSeconds).Observe(step.seconds);
  if (!std::isfinite(step.loss)) Nonfinite(slot, "loss");
  if (!std::isfinite(step.grad_norm)) Nonfinite(slot, "grad");
  for (const char* phase :
       {"data", "forward", "backward", "optimizer", "checkpoint", "sample", "modulation_wait", "other"}) {
    const auto found = step.phase_seconds.find(phase);
    phase_seconds_.Add({{"slot", slot}, {"phase", phase}})
        .Increment(found == step.phase_seconds.end() ? 0 : Grown(found->second, 0.0));
  }
  base::MutexLock lock(mutex_);
  AddSwap(slot, step.swap);
}

void SlotMetrics::Memory(const std::string& slot, const MemoryUpdate& memory) {
  // Purposes are a closed list of the worker's ledger; a broken worker must not open new series
  // without end.
  constexpr size_t kMaxPurposes = 16;
  const auto set = [](prometheus::Gauge& gauge, int64_t bytes, auto& gauges) {
    gauge.Set(static_cast<double>(bytes));
    gauges.insert(&gauge);
  };
  const auto set_all = [&](auto& family, const char* label, const auto& values, auto& gauges) {
    size_t count = 0;
    for (const auto& [purpose, bytes] : values) {
      if (++count > kMaxPurposes) break;
      set(family.Add({{"slot", slot}, {label, purpose}}), bytes, gauges);
    }
  };
  base::MutexLock lock(mutex_);
  std::set<prometheus::Gauge*>&now = slots_[slot].memory, &peaks = slots_[slot].peaks;
  set_all(device_peak_, "kind", memory.peak_bytes, peaks);
  set_all(device_memory_, "kind", memory.allocated_bytes, now);
  set_all(plan_, "what", memory.planned_bytes, now);
  set(budget_.Add({{"slot", slot}}), memory.device_budget_bytes, now);
  set(host_memory_.Add({{"slot", slot}, {"kind", "rss"}}), memory.host_rss_bytes, now);
  set(host_memory_.Add({{"slot", slot}, {"kind", "pinned"}}), memory.host_pinned_bytes, now);
  set(host_memory_.Add({{"slot", slot}, {"kind", "masters"}}), memory.host_master_bytes, now);
  set(host_memory_.Add({{"slot", slot}, {"kind", "locked"}}), memory.host_locked_bytes, now);
  set(host_memory_.Add({{"slot", slot}, {"kind", "shared"}}), memory.host_shared_bytes, now);
  set(host_memory_.Add({{"slot", slot}, {"kind", "file"}}), memory.host_file_bytes, now);
  pin_fallback_.Add({{"slot", slot}}).Set(memory.pinning_fell_back ? 1 : 0);
}

void SlotMetrics::CheckpointWritten(const std::string& slot, int64_t bytes, double seconds,
                                    double unix_seconds) {
  checkpoint_writes_.Add({{"result", "ok"}}).Increment();
  checkpoint_bytes_.Add({{"slot", slot}}).Set(static_cast<double>(bytes));
  checkpoint_seconds_.Add({{"slot", slot}}, kCheckpointSeconds).Observe(seconds);
  checkpoint_time_.Add({{"slot", slot}}).Set(unix_seconds);
}

void SlotMetrics::CheckpointFailed() { checkpoint_writes_.Add({{"result", "failed"}}).Increment(); }

void SlotMetrics::Replanned(const std::string& slot, const std::string& reason) {
  constexpr const char* kReasons[] = {"MEMORY_UPDATED", "MEASURED_MEMORY", "MEASURED_TIME",
                                      "LESS_DEVICE_MEMORY", "OUT_OF_MEMORY", "SAMPLING",
                                      "TRAINING"};
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
