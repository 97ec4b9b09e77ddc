// SPDX-License-Identifier: Apache-2.0
// A Reporter for tests that tells nobody and keeps what it was told.
#ifndef BLOCKSWAP_TESTS_FAKES_NULL_REPORTER_H_
#define BLOCKSWAP_TESTS_FAKES_NULL_REPORTER_H_

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/channel/reporter.h"

namespace blockswap::testing {

// Members are public records; `after_step` may change `stop` and the requests.
class NullReporter final : public worker::Reporter {
 public:
  void Phase(absl::string_view phase) override { phases.emplace_back(phase); }
  void Ready(const worker::ReadyReport& ready) override { readies.push_back(ready); }
  void Step(const worker::StepReport& step) override {
    steps.push_back(step);
    if (after_step) after_step(step);
  }
  void Memory(const worker::MemoryReport& memory) override { memories.push_back(memory); }
  void CheckpointCommitted(int64_t step, const std::string&, const std::string&, int64_t,
                           double) override {
    checkpoint_steps.push_back(step);
  }
  void Replanned(const worker::PlanReport& plan) override { replans.push_back(plan); }
  void SampleReady(int64_t, const std::string& file) override { samples.push_back(file); }
  void Warning(absl::string_view reason, const std::string& message) override {
    warnings.push_back(std::string(reason) + ": " + message);
  }
  void Exiting(const worker::ExitReport& report) override { exits.push_back(report); }

  std::optional<worker::MemoryConfig> TakeMemoryUpdate() override {
    return std::exchange(memory_update, std::nullopt);
  }

  worker::StopRequest stop_requested() override { return stop; }
  bool TakeCheckpointRequest() override { return std::exchange(checkpoint_request, false); }
  bool TakeSampleRequest() override { return std::exchange(sample_request, false); }

  std::vector<std::string> phases, samples, warnings;
  std::vector<worker::ReadyReport> readies;
  std::vector<worker::StepReport> steps;
  std::vector<worker::MemoryReport> memories;
  std::vector<int64_t> checkpoint_steps;
  std::vector<worker::ExitReport> exits;
  std::vector<worker::PlanReport> replans;
  std::function<void(const worker::StepReport&)> after_step;
  worker::StopRequest stop = worker::StopRequest::kNone;
  std::optional<worker::MemoryConfig> memory_update;
  bool checkpoint_request = false, sample_request = false;
};

}  // namespace blockswap::testing

#endif  // BLOCKSWAP_TESTS_FAKES_NULL_REPORTER_H_
