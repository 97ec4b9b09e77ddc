// SPDX-License-Identifier: Apache-2.0
#include "tests/server/testing/full_metrics.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/metrics/gpu_collector.h"
#include "server/metrics/machine_collector.h"

namespace blockswap::server {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

std::string SlotName(int index) { return absl::StrCat("cuda-", index); }
std::string Uuid(int index) { return absl::StrCat("GPU-", index); }

std::vector<GpuReading> Readings(int slots, double seconds) {
  std::vector<GpuReading> readings;
  for (int i = 0; i < slots; ++i) {
    GpuReading reading;
    reading.index = i;
    reading.uuid = Uuid(i);
    reading.total_bytes = 8000 * kMiB;
    reading.used_bytes = 5000 * kMiB;
    reading.free_bytes = 3000 * kMiB;
    reading.utilization_ratio = 0.9;
    reading.power_watts = 300;
    reading.temperature_celsius = 65;
    reading.sm_clock_hertz = 1.9e9;
    reading.energy_joules = 1000 + 300 * seconds;
    reading.throttle_bits = 0xff;
    reading.pcie_rx = reading.pcie_tx = static_cast<uint64_t>(1e9 * (1 + seconds));
    readings.push_back(std::move(reading));
  }
  return readings;
}

std::vector<DeviceState> Devices(int slots) {
  std::vector<DeviceState> devices;
  for (int i = 0; i < slots; ++i) {
    DeviceState device;
    device.name = SlotName(i);
    device.uuid = Uuid(i);
    device.kind = DeviceKind::kCuda;
    device.link.h2d = device.link.d2h = device.link.duplex_h2d = device.link.duplex_d2h = 25e9;
    device.link.pageable = 10e9;
    device.link.duplex_factor = 1.5;
    device.negotiated = {.generation = 4, .max_generation = 4, .width = 16, .max_width = 16};
    devices.push_back(std::move(device));
  }
  return devices;
}

MemoryUpdate Memory(bool everything) {
  MemoryUpdate memory;
  for (const char* purpose :
       {"ring", "resident_blocks", "edge_weights", "adapter", "optimizer", "activations"}) {
    memory.planned_bytes[purpose] = memory.allocated_bytes[purpose] = memory.peak_bytes[purpose] =
        100 * kMiB;
  }
  memory.host_planned_bytes["pinned"] = 50 * kMiB;
  if (everything) {
    for (const char* place : {"pageable", "file", "activations"}) {
      memory.host_planned_bytes[place] = 50 * kMiB;
    }
    memory.planned_bytes["other"] = memory.allocated_bytes["other"] = memory.peak_bytes["other"] =
        kMiB;
  }
  memory.device_budget_bytes = 6000 * kMiB;
  memory.host_rss_bytes = memory.host_pinned_bytes = memory.host_master_bytes = 2000 * kMiB;
  memory.host_locked_bytes = 1000 * kMiB;
  memory.host_shared_bytes = everything ? kMiB : 0;
  memory.allocator = AllocatorStats{kMiB, kMiB, 2 * kMiB, 1, 1, 4, 2};
  return memory;
}

WorkerStep StepReport(int64_t step, bool everything) {
  WorkerStep report;
  report.step = step;
  report.loss = 0.5;
  report.learning_rate = 1e-3;
  report.grad_norm = 0.7;
  report.seconds = 0.9;
  report.samples = 2;
  report.tokens = 4096;
  report.device_bytes_peak = 800 * kMiB;
  for (const char* phase : {"data", "forward", "backward", "optimizer", "other"}) {
    report.phase_seconds[phase] = 0.1;
  }
  const auto steps = static_cast<double>(step);
  report.swap.h2d_bytes = report.swap.h2d_link_bytes = step * 500 * kMiB;
  report.swap.h2d_transfers = step * 20;
  report.swap.h2d_busy_seconds = steps * 0.05;
  if (everything) {
    report.phase_seconds["modulation_wait"] = 0.1;
    report.swap.d2h_bytes = report.swap.d2h_link_bytes = report.swap.h2d_bytes;
    report.swap.d2h_transfers = report.swap.h2d_transfers;
    report.swap.d2h_busy_seconds = report.swap.h2d_busy_seconds;
  }
  report.swap.forward_stall_seconds = report.swap.backward_stall_seconds = steps * 0.01;
  report.swap.hits = step * 18;
  report.swap.late = report.swap.misses = step;
  report.swap.blocks_on_device = 10;
  report.swap.blocks_on_host = 20;
  report.swap.blocks_in_flight = 2;
  return report;
}

void WriteFile(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

// The same on every machine, with a control group's limit.
base::HostFactsPaths HostWithALimit(const std::string& directory) {
  base::HostFactsPaths paths = {directory + "/proc", directory + "/cgroup"};
  WriteFile(paths.proc + "/meminfo", "MemTotal: 1000000 kB\nMemAvailable: 600000 kB\n");
  WriteFile(paths.proc + "/self/cgroup", "0::/job\n");
  WriteFile(paths.control_groups + "/job/memory.max", "900000000\n");
  WriteFile(paths.control_groups + "/job/memory.current", "100000000\n");
  return paths;
}

Collector::Families ReadOnce(const Collector::Read& read) {
  auto families = read();
  EXPECT_TRUE(families.ok()) << families.status();
  return families.ok() ? *std::move(families) : Collector::Families();
}

}  // namespace

FullMetrics::FullMetrics(const std::string& directory, int slots) : slots_(slots) {
  AddSources(directory, slots);
  FillServer();
  FillCalls();
  metrics_.SetDevices(Devices(slots));
  for (int i = 0; i < slots; ++i) FillSlot(SlotName(i));
  Step();
}

void FullMetrics::AddSources(const std::string& directory, int slots) {
  auto store = JobStore::Open(directory + "/jobs.db");
  EXPECT_TRUE(store.ok()) << store.status();
  if (store.ok()) store_ = *std::move(store);
  Collector::Families families;
  const auto add = [&families](Collector::Families more) {
    families.insert(families.end(), std::make_move_iterator(more.begin()),
                    std::make_move_iterator(more.end()));
  };
  if (store_ != nullptr) add(ReadOnce(ReadStore(*store_)));
  add(ReadOnce(ReadHostMemory(metrics_.slots(), HostWithALimit(directory))));
  add(ReadOnce(ReadStorage({{"state", directory}, {"outputs", directory}, {"cache", directory}})));
  GpuFigures figures(/*health=*/true);
  figures.Update(Readings(slots, 0), {}, SteadyTime{std::chrono::seconds(1)});
  add(figures.Update(Readings(slots, 1), {{0, Uuid(0), 79}}, SteadyTime{std::chrono::seconds(2)}));
  const auto collectors = std::make_shared<CollectorSet>();
  for (const char* name : {"nvml", "storage", "cgroup", "store", "worker", "dcgm"}) {
    collectors->Add(name, [] { return Collector::Families(); });
  }
  metrics_.AddSource([families = std::move(families), collectors] {
    Collector::Families all = families;
    Collector::Families about = collectors->Collect();
    all.insert(all.end(), std::make_move_iterator(about.begin()),
               std::make_move_iterator(about.end()));
    return all;
  });
}

void FullMetrics::FillServer() {
  metrics_.SetReady(true);
  for (const char* result : {"accepted", "duplicate", "invalid", "rejected"}) {
    metrics_.JobSubmitted(result);
  }
  metrics_.JobFinished("succeeded", FailureCategory::kNone);
  metrics_.JobFinished("cancelled", FailureCategory::kNone);
  for (int i = 1; i < kNumFailureCategories; ++i) {
    metrics_.JobFinished("failed", static_cast<FailureCategory>(i));
    metrics_.JobRestarted(static_cast<FailureCategory>(i));
  }
  metrics_.JobQueuedFor(1);
  for (const char* phase : {"spawn", "load_weights", "first_step"}) metrics_.JobStartup(phase, 1);
  for (const char* result : {"succeeded", "failed", "cancelled", "suspended"}) {
    metrics_.AttemptEnded(result, 100);
  }
  for (const char* cause :
       {"ok", "signal", "error", "oom_device", "oom_host", "device_fault", "stalled"}) {
    metrics_.WorkerExited(cause);
  }
  for (const char* kind : {"resources", "other"}) metrics_.WorkerNotStarted(kind);
  metrics_.StoreTransaction(/*is_write=*/true, 0.001);
  metrics_.StoreTransaction(/*is_write=*/false, 0.001);
  metrics_.SchedulerPass(0.001);
  metrics_.WatchDropped("slow_consumer");
  metrics_.WatchDropped("limit");
  for (const char* reason : {"token_missing", "token_invalid", "token_expired", "certificate",
                             "access_denied", "something else"}) {
    metrics_.AuthFailed(reason);
  }
  metrics_.SetCertificateExpiry(2e9);
  metrics_.SetSharedMemory({.used_bytes = kMiB, .unused_bytes = kMiB});
}

// What a dashboard, a command line and a submitter call.
void FullMetrics::FillCalls() {
  for (const char* method : {"CreateJob", "PlanJob", "GetJob", "ListJobs", "CancelJob",
                             "ListJobEvents", "ListMetricPoints", "GetServerInfo"}) {
    const CalledMethod called = {"blockswap.v1.TrainingService", method, "unary"};
    metrics_.calls().Started(called);
    metrics_.calls().Handled(called, "OK", 0.01);
  }
  for (const char* method : {"WatchJobs", "StreamJobLogs"}) {
    const CalledMethod called = {"blockswap.v1.TrainingService", method, "server_stream"};
    metrics_.calls().Started(called);
    metrics_.calls().Handled(called, "OK", 5);
  }
}

void FullMetrics::FillSlot(const std::string& slot) {
  SlotMetrics& slots = metrics_.slots();
  slots.WorkerStarted({slot, absl::StrCat("job-on-", slot), slot, absl::StrCat("uuid-", slot),
                       "qwen_image", 1, ::getpid()});
  slots.Heartbeat(slot, 1.7e9);
  slots.Ready(slot, 0, 1000);
  slots.Memory(slot, Memory(everything()));
  slots.memory().Process(slot, {kMiB, kMiB, kMiB, kMiB, kMiB});
  slots.memory().DeviceTotal(slot, 900 * kMiB);
  slots.CheckpointWritten(slot, 100 * kMiB, 0.5, 1.7e9);
  slots.Phase(slot, "sampling", SteadyTime{std::chrono::seconds(1)});
  slots.Phase(slot, "training", SteadyTime{std::chrono::seconds(2)});
  slots.Replanned(slot, "MEASURED_TIME");
  if (everything()) FillRareEvents(slot);
}

void FullMetrics::FillRareEvents(const std::string& slot) {
  SlotMetrics& slots = metrics_.slots();
  slots.CheckpointFailed();
  for (const char* where : {"loss", "grad"}) slots.Nonfinite(slot, where);
  for (const char* reason : {"MEMORY_UPDATED", "MEASURED_MEMORY", "LESS_DEVICE_MEMORY",
                             "OUT_OF_MEMORY", "SAMPLING", "TRAINING", "none of these"}) {
    slots.Replanned(slot, reason);
  }
}

void FullMetrics::Step() {
  ++step_;
  for (int i = 0; i < slots_; ++i) {
    metrics_.slots().Step(SlotName(i), StepReport(step_, everything()),
                          1.7e9 + static_cast<double>(step_));
  }
}

}  // namespace blockswap::server
