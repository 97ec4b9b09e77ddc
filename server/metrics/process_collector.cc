// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/process_collector.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <string>
#include <system_error>

#include "offload/base/proc_file.h"
#include "server/metrics/metric_parts.h"
#include "server/supervisor/process_identity.h"

namespace blockswap::server {
namespace {

double CpuSeconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double OpenDescriptors() {
  std::error_code error;
  const std::filesystem::directory_iterator entries("/proc/self/fd", error);
  return error ? 0 : static_cast<double>(std::distance(begin(entries), end(entries)));
}

double MaxDescriptors() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? static_cast<double>(limit.rlim_cur) : 0;
}

double Threads() {
  std::error_code error;
  const std::filesystem::directory_iterator entries("/proc/self/task", error);
  return error ? 0 : static_cast<double>(std::distance(begin(entries), end(entries)));
}

double StartUnixSeconds() {
  const auto ticks = static_cast<double>(ProcessStartTime(::getpid()));
  timespec now{}, since_boot{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  ::clock_gettime(CLOCK_BOOTTIME, &since_boot);
  return static_cast<double>(now.tv_sec - since_boot.tv_sec) +
         ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace

std::vector<prometheus::MetricFamily> CollectProcessMetrics() {
  std::vector<prometheus::MetricFamily> families;
  const auto add = [&families](CollectedFamily family, double value) {
    family.Add({}, value);
    family.MoveTo(families);
  };
  const auto resident = base::ReadProcBytes("/proc/self/status", "VmRSS").value_or(0);
  add(CollectedFamily::Counter("process_cpu_seconds_total", "User and system CPU time."),
      CpuSeconds());
  add(CollectedFamily::Gauge("process_resident_memory_bytes", "Resident memory."),
      static_cast<double>(resident));
  add(CollectedFamily::Gauge("process_open_fds", "Open file descriptors."), OpenDescriptors());
  add(CollectedFamily::Gauge("process_max_fds", "Largest number of open file descriptors."),
      MaxDescriptors());
  add(CollectedFamily::Gauge("process_threads", "Threads."), Threads());
  add(CollectedFamily::Gauge("process_start_time_seconds", "Unix time of the process start."),
      StartUnixSeconds());
  return families;
}

}  // namespace blockswap::server
