// SPDX-License-Identifier: Apache-2.0
// A worker without torch that does, or misdoes, what the job's label "fake" says: "steps=5 save=2
// crash_at=3".
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>

#include "absl/time/time.h"
#include "worker/channel/server_channel.h"

namespace {

using blockswap::worker::ExitCode;
using blockswap::worker::ExitReport;
using blockswap::worker::Reporter;
using blockswap::worker::StopRequest;

// steps, save: how many, and every how many a checkpoint. hold_at: waits there for a stop or the
// file "go". crash_at, crash_attempts: SIGKILLs itself there in the first attempts. exit_at,
// exit_code, exit_attempts: fails there. ignore_stop, ignore_term: does not hear. no_attach: never
// connects. quiet_exit: exits with exit_code without a report. seconds: claimed duration of a step.
// lines: printed per step.
class Script {
 public:
  explicit Script(const std::string& text) {
    std::istringstream words(text);
    std::string word;
    while (words >> word) {
      const size_t equals = word.find('=');
      values_[word.substr(0, equals)] =
          equals == std::string::npos ? 1 : std::atol(word.c_str() + equals + 1);
    }
  }
  int64_t Get(const char* key, int64_t otherwise) const {
    const auto found = values_.find(key);
    return found == values_.end() ? otherwise : found->second;
  }

 private:
  std::map<std::string, int64_t> values_;
};

void WaitABit() { ::poll(nullptr, 0, 2); }

std::string ReadToken() {
  std::string token;
  char buffer[256];
  ssize_t got = 0;
  while ((got = ::read(3, buffer, sizeof(buffer))) > 0)
    token.append(buffer, static_cast<size_t>(got));
  return token;
}

bool Exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

class FakeTraining {
 public:
  FakeTraining(Script script, std::string output, int attempt, Reporter& reporter)
      : script_(std::move(script)),
        output_(std::move(output)),
        attempt_(attempt),
        reporter_(reporter) {}

  int Run() {
    std::ifstream(output_ + "/fake-step") >> step_;
    start_step_ = step_;
    const int64_t steps = script_.Get("steps", 3);
    blockswap::worker::ReadyReport ready;
    ready.start_step = step_;
    ready.total_steps = steps;
    ready.plan_json = "{\"fake\":true}";
    ready.plan_text = "a fake plan";
    if (step_ > 0) ready.resumed_from = "fake-step";
    reporter_.Ready(ready);
    reporter_.Phase("training");
    while (step_ < steps) {
      const int64_t next = step_ + 1;
      if (script_.Get("hold_at", 0) == next) Hold();
      const StopRequest stop = Stop();
      if (stop != StopRequest::kNone) return EndStopped(stop);
      if (script_.Get("crash_at", 0) == next && attempt_ <= script_.Get("crash_attempts", 1)) {
        ::raise(SIGKILL);
      }
      if (script_.Get("exit_at", 0) == next && attempt_ <= script_.Get("exit_attempts", 1))
        return EndFailed();
      MakeStep(next);
    }
    Save();
    ExitReport report;
    report.step = step_;
    report.adapter_file = output_ + "/fake.safetensors";
    reporter_.Exiting(report);
    return 0;
  }

 private:
  StopRequest Stop() const {
    return script_.Get("ignore_stop", 0) != 0 ? StopRequest::kNone : reporter_.stop_requested();
  }

  void Hold() {
    while (Stop() == StopRequest::kNone && !Exists(output_ + "/go")) {
      if (reporter_.TakeCheckpointRequest()) Save();
      NoteMemoryUpdate();
      WaitABit();
    }
  }

  // Leaves the newest budget it was told in the file "fake-memory".
  void NoteMemoryUpdate() {
    const std::optional<blockswap::worker::MemoryConfig> update = reporter_.TakeMemoryUpdate();
    if (!update.has_value()) return;
    std::ofstream(output_ + "/fake-memory")
        << (update->vram_budget_bytes.value_or(0) >> 30) << "GiB\n";
  }

  void MakeStep(int64_t step) {
    step_ = step;
    blockswap::worker::StepReport report;
    report.step = step;
    report.epoch = 1;
    report.loss = 1.0 / static_cast<double>(step);
    report.learning_rate = 1e-3;
    report.grad_norm = 0.5;
    report.seconds = 0.001 * static_cast<double>(script_.Get("seconds", 1));
    report.samples = 1;
    report.phase_seconds["forward"] = report.seconds;
    report.swap.h2d_bytes = (step - start_step_) * 1000;
    report.swap.forward_stall = absl::Milliseconds(250 * (step - start_step_));
    report.swap.backward_stall = absl::Milliseconds(500 * (step - start_step_));
    report.device_bytes_peak = 4096;
    reporter_.Step(report);
    for (int64_t line = 0; line < script_.Get("lines", 1); ++line) {
      std::printf("attempt %d step %lld line %lld\n", attempt_, static_cast<long long>(step),
                  static_cast<long long>(line));
    }
    std::fflush(stdout);
    if (step % script_.Get("save", 1000000) == 0) Save();
  }

  void Save() {
    const std::string path = output_ + "/fake-step";
    std::ofstream(path + ".tmp") << step_;
    std::rename((path + ".tmp").c_str(), path.c_str());
    reporter_.CheckpointCommitted(step_, path, "0000", 8, 0.001);
  }

  int EndStopped(StopRequest stop) {
    if (stop != StopRequest::kNow) Save();
    ExitReport report;
    report.code = stop == StopRequest::kSuspend ? ExitCode::kSuspended : ExitCode::kCancelled;
    report.step = step_;
    reporter_.Exiting(report);
    return static_cast<int>(report.code);
  }

  int EndFailed() {
    const auto code = static_cast<ExitCode>(script_.Get("exit_code", 20));
    if (script_.Get("quiet_exit", 0) == 0) {
      ExitReport report;
      report.code = code;
      report.category = "NUMERICS";
      report.reason = "FAKE_FAILURE";
      report.message = "failed on command";
      report.step = step_;
      reporter_.Exiting(report);
    }
    return static_cast<int>(code);
  }

  const Script script_;
  const std::string output_;
  const int attempt_;
  Reporter& reporter_;
  int64_t step_ = 0, start_step_ = 0;
};

// What `blockswap-worker link-test` prints; the script comes from the environment.
int RunLinkTest() {
  const char* script = std::getenv("FAKE_LINK_TEST");
  const std::string word = script == nullptr ? "" : script;
  if (word == "fail") return 20;
  if (word == "garbage") std::puts("{\"h2d_bytes_per_second\": \"fast\"}");
  while (word == "hang") WaitABit();
  if (!word.empty()) return 0;
  std::puts(R"({"h2d_bytes_per_second": 24e9, "d2h_bytes_per_second": 26e9, )"
            R"("duplex_h2d_bytes_per_second": 14e9, "duplex_d2h_bytes_per_second": 25e9, )"
            R"("duplex_factor": 1.5, "pageable_bytes_per_second": 9e9, "latency_seconds": 8e-6})");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "link-test") return RunLinkTest();
  std::map<std::string, std::string> flags;
  for (int i = 2; i + 1 < argc; i += 2) flags[argv[i]] = argv[i + 1];
  std::ifstream file(flags["--job-json"]);
  const nlohmann::json job = nlohmann::json::parse(file, nullptr, false);
  const std::string text =
      job.is_object() && job.contains("labels") ? job["labels"].value("fake", "") : "";
  Script script(text);
  if (script.Get("ignore_term", 0) != 0) ::signal(SIGTERM, SIG_IGN);
  const std::string token = ReadToken();
  if (token.empty()) return 20;
  while (script.Get("no_attach", 0) != 0) WaitABit();

  blockswap::worker::ServerChannelOptions options;
  options.socket_path = flags["--socket"];
  options.token = token;
  options.job_uid = flags["--job-uid"];
  options.attempt = std::atoi(flags["--attempt"].c_str());
  auto reporter = blockswap::worker::ConnectToServer(options);
  if (!reporter.ok()) {
    std::fprintf(stderr, "%s\n", std::string(reporter.status().message()).c_str());
    return 20;
  }
  FakeTraining training(std::move(script), flags["--output"], options.attempt, **reporter);
  return training.Run();
}
