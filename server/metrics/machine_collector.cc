// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/machine_collector.h"

#include <algorithm>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "offload/base/proc_file.h"
#include "offload/base/status_macros.h"
#include "server/device/disk_space.h"
#include "server/jobs/transitions.h"
#include "server/metrics/metric_parts.h"

namespace blockswap::server {
namespace {

absl::StatusOr<Collector::Families> HostFamilies(const base::HostFacts& facts, int64_t pinned) {
  if (facts.host_total_bytes == 0) {
    return absl::UnavailableError("the kernel does not tell the machine's memory");
  }
  auto limit = CollectedFamily::Gauge("blockswap_host_memory_limit_bytes", "Host memory there is.");
  auto available =
      CollectedFamily::Gauge("blockswap_host_memory_available_bytes", "Host memory to be had.");
  auto pool = CollectedFamily::Gauge(
      "blockswap_pinned_pool_bytes",
      "Host memory that workers have page-locked, and with what they still may.");
  const auto add = [&](const char* source, int64_t there_is, int64_t to_be_had) {
    limit.Add({{"source", source}}, there_is);
    available.Add({{"source", source}}, to_be_had);
  };
  add("host", facts.host_total_bytes, facts.host_available_bytes);
  if (facts.control_group_limit != base::kNoLimit) {
    add("cgroup", facts.control_group_limit, facts.control_group_available);
  }
  add("effective", std::min(facts.host_total_bytes, facts.control_group_limit),
      facts.available_bytes);
  pool.Add({{"state", "used"}}, pinned);
  pool.Add({{"state", "total"}}, pinned + facts.lockable_bytes);
  Collector::Families families;
  for (CollectedFamily* family : {&limit, &available, &pool}) family->MoveTo(families);
  return families;
}

absl::StatusOr<Collector::Families> StorageFamilies(const StorageAreas& areas) {
  auto free = CollectedFamily::Gauge("blockswap_storage_free_bytes",
                                     "Free bytes of the disk an area is on.");
  auto total =
      CollectedFamily::Gauge("blockswap_storage_total_bytes", "Size of the disk an area is on.");
  std::string unknown;
  for (const auto& [area, directory] : areas) {
    const DiskSpace space = ReadDiskSpace(directory);
    if (space.total_bytes == 0) {
      absl::StrAppend(&unknown, unknown.empty() ? "" : ", ", area);
      continue;
    }
    free.Add({{"area", area}}, space.free_bytes);
    total.Add({{"area", area}}, space.total_bytes);
  }
  Collector::Families families;
  free.MoveTo(families);
  total.MoveTo(families);
  if (families.empty()) {
    return absl::UnavailableError(absl::StrCat("no disk space is known of: ", unknown));
  }
  return families;
}

absl::StatusOr<Collector::Families> StoreFamilies(JobStore& store) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const auto counts, store.CountJobs());
  auto jobs = CollectedFamily::Gauge("blockswap_jobs", "Jobs by state.");
  for (int i = 1; i <= kNumJobStates; ++i) {
    const auto state = static_cast<JobState>(i);
    const auto found = counts.find(state);
    jobs.Add({{"state", absl::AsciiStrToLower(StateName(state))}},
             found == counts.end() ? int64_t{0} : found->second);
  }
  auto writable =
      CollectedFamily::Gauge("blockswap_store_writable", "0 after the disk refused a write.");
  writable.Add({}, store.writable() ? 1.0 : 0.0);
  auto sequence = CollectedFamily::Gauge("blockswap_events_sequence", "Number of the last event.");
  sequence.Add({}, store.last_sequence());
  auto errors = CollectedFamily::Counter("blockswap_store_errors_total",
                                         "Operations the state store could not do.");
  const JobStore::ErrorCounts failed = store.errors();
  errors.Add({{"kind", "read_only"}}, failed.read_only);
  errors.Add({{"kind", "corrupt"}}, failed.corrupt);
  errors.Add({{"kind", "internal"}}, failed.internal);
  Collector::Families families;
  for (CollectedFamily* family : {&jobs, &writable, &sequence, &errors}) family->MoveTo(families);
  return families;
}

absl::StatusOr<Collector::Families> NoteWorkers(SlotMetrics& slots, const DeviceUse& use,
                                                const std::string& proc) {
  if (!base::ReadProcBytes(absl::StrCat(proc, "/self/status"), "VmRSS").has_value()) {
    return absl::UnavailableError(absl::StrCat("cannot read processes below ", proc));
  }
  for (const SlotMetrics::Worker& worker : slots.Workers()) {
    if (worker.pid == 0) continue;
    const std::string path = absl::StrCat(proc, "/", worker.pid, "/status");
    const auto read = [&path](const char* key) {
      return base::ReadProcBytes(path, key).value_or(0);
    };
    ProcessMemory memory;
    memory.resident_bytes = read("VmRSS");
    // A process that has just ended has no memory; its slot is freed in a moment.
    if (memory.resident_bytes == 0) continue;
    memory.anonymous_bytes = read("RssAnon");
    memory.file_bytes = read("RssFile");
    memory.shared_bytes = read("RssShmem");
    memory.locked_bytes = read("VmLck") + read("VmPin");
    slots.memory().Process(worker.slot, memory);
    if (const auto bytes = use.Of(worker.pid)) slots.memory().DeviceTotal(worker.slot, *bytes);
  }
  return Collector::Families();
}

}  // namespace

Collector::Read ReadHostMemory(const SlotMetrics& slots, base::HostFactsPaths paths) {
  return [&slots, paths = std::move(paths)] {
    return HostFamilies(base::ReadHostFacts(paths), slots.pinned_bytes());
  };
}

Collector::Read ReadStorage(StorageAreas areas) {
  return [areas = std::move(areas)] { return StorageFamilies(areas); };
}

Collector::Read ReadStore(JobStore& store) {
  return [&store] { return StoreFamilies(store); };
}

Collector::Read ReadWorkers(SlotMetrics& slots, std::shared_ptr<DeviceUse> use, std::string proc) {
  return [&slots, use = std::move(use), proc = std::move(proc)] {
    return NoteWorkers(slots, *use, proc);
  };
}

}  // namespace blockswap::server
