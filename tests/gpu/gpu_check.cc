// SPDX-License-Identifier: Apache-2.0
// Runs every check on one device and prints one JSON object.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/gpu/gpu_checks.h"
#include "worker/train/compute_threads.h"

namespace blockswap::gpu {
namespace {

struct Check {
  const char* name;
  absl::StatusOr<Report> (*run)(const CheckOptions& options);
};

constexpr Check kChecks[] = {
    {"link", CheckLink},         {"ring", CheckRing},     {"equal_bits", CheckEqualBits},
    {"base", CheckBaseTraining}, {"memory", CheckMemory}, {"stack", CheckStack}};

Report RunCheck(const Check& check, const CheckOptions& options) {
  const absl::Time begin = absl::Now();
  absl::StatusOr<Report> result = check.run(options);
  Report report;
  if (result.ok()) {
    report = *std::move(result);
  } else {
    report["ok"] = false;
    report["error"] = std::string(result.status().message());
  }
  report["check_seconds"] = absl::ToDoubleSeconds(absl::Now() - begin);
  std::fprintf(stderr, "%s: %s, %.1f s\n", check.name, report["ok"].get<bool>() ? "ok" : "NOT OK",
               report["check_seconds"].get<double>());
  return report;
}

int Main(int argc, char** argv) {
  CLI::App app("checks blockswap on one device", "gpu_check");
  CheckOptions options;
  std::vector<std::string> only;
  int threads = 1;
  app.add_option("--device", options.device, "cuda:N or host");
  app.add_flag("--tiny", options.tiny, "sizes for a slow CPU");
  app.add_option("--scratch", options.scratch, "directory for the models' files");
  app.add_option("--threads", threads, "of the host's arithmetic")->check(CLI::PositiveNumber);
  app.add_option("--only", only, "link, ring, equal_bits, base, memory, stack")->delimiter(',');
  CLI11_PARSE(app, argc, argv);
  worker::UseThreads(threads);
  Report report;
  report["device"] = options.device;
  report["tiny"] = options.tiny;
  bool ok = true;
  for (const Check& check : kChecks) {
    if (!only.empty() && std::find(only.begin(), only.end(), check.name) == only.end()) continue;
    report[check.name] = RunCheck(check, options);
    ok = ok && report[check.name]["ok"].get<bool>();
  }
  report["ok"] = ok;
  std::printf("%s\n", report.dump(2, ' ', false, Report::error_handler_t::replace).c_str());
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace blockswap::gpu

int main(int argc, char** argv) {
  blockswap::worker::EnsurePassiveWaiting(argv);
  return blockswap::gpu::Main(argc, argv);
}
