// SPDX-License-Identifier: Apache-2.0
// A worker without torch that does, or misdoes, what the job's label "fake" says: "steps=5 save=2
// crash_at=3".
#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "tests/fakes/fake_checkpoints.h"
#include "tests/fakes/fake_script.h"
#include "tests/fakes/strange_speech.h"
#include "worker/channel/exit_report_json.h"
#include "worker/channel/process_identity.h"
#include "worker/channel/server_channel.h"
#include "worker/channel/stack_dump.h"

namespace {

using blockswap::FakeScript;
using blockswap::worker::ExitCode;
using blockswap::worker::ExitReport;
using blockswap::worker::Reporter;
using blockswap::worker::ServerChannelOptions;
using blockswap::worker::StopRequest;

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
  FakeTraining(FakeScript script, std::string output, int attempt,
               std::unique_ptr<Reporter> reporter)
      : script_(std::move(script)),
        output_(std::move(output)),
        attempt_(attempt),
        reporter_(std::move(reporter)) {
    if (script_.Get("real_save", 0) != 0) {
      checkpoints_.emplace(output_, script_.Get("full_from", 0), script_.Get("full_to", 0));
    }
  }

  int Run() {
    std::ifstream(output_ + "/fake-step") >> step_;
    const int64_t steps = script_.Get("steps", 3);
    if (script_.Get("leave_child", 0) != 0) LeaveChild();
    CrashAt("crash_load");
    if (script_.Get("exit_load", 0) != 0 && attempt_ <= script_.Get("exit_attempts", 1))
      return EndFailed();
    blockswap::worker::ReadyReport ready;
    ready.start_step = step_;
    ready.total_steps = steps;
    ready.plan_json = "{\"fake\":true}";
    ready.plan_text = "a fake plan";
    if (step_ > 0) ready.resumed_from = "fake-step";
    if (script_.Get("load_gib", 0) > 0) Load(script_.Get("load_gib", 0) << 30);
    if (checkpoints_.has_value()) checkpoints_->Resume(ready);
    start_step_ = step_ = ready.start_step;
    reporter_->Ready(ready);
    reporter_->Phase("training");
    while (step_ < steps) {
      const int64_t next = step_ + 1;
      if (script_.Get("hold_at", 0) == next) Hold();
      if (script_.Get("hang_at", 0) == next && IsScriptedAttempt()) Hang();
      if (script_.Get("drop_at", 0) == next && IsScriptedAttempt()) {
        reporter_.reset();
        Hang();
      }
      const StopRequest stop = Stop();
      if (stop != StopRequest::kNone) return EndStopped(stop);
      if (script_.Get("crash_at", 0) == next && IsScriptedAttempt()) ::raise(SIGKILL);
      if (script_.Get("exit_at", 0) == next && attempt_ <= script_.Get("exit_attempts", 1))
        return EndFailed();
      MakeStep(next);
      if (script_.Get("replan_at", 0) == next) Replan();
      if (storage_failure_.has_value()) return EndWith(*storage_failure_);
    }
    Save(/*required=*/true);
    if (storage_failure_.has_value()) return EndWith(*storage_failure_);
    ExitReport report;
    report.step = step_;
    report.adapter_file = output_ + "/fake.safetensors";
    End(report);
    return 0;
  }

 private:
  void End(const ExitReport& report) {
    reporter_->Exiting(report);
    const std::string path = output_ + "/exit.json";
    std::ofstream(path + ".tmp") << blockswap::worker::ExitReportToJson(report, attempt_);
    std::rename((path + ".tmp").c_str(), path.c_str());
  }

  bool IsScriptedAttempt() const { return attempt_ <= script_.Get("crash_attempts", 1); }
  void CrashAt(const char* where) const {
    if (script_.Get(where, 0) != 0 && IsScriptedAttempt()) ::raise(SIGKILL);
  }
  void Hang() const {
    while (Exists(output_)) WaitABit();
  }

  // In a session of its own, and its parent is gone: as a daemon is. Leaves its pid in
  // "fake-child".
  void LeaveChild() const {
    const std::string command = "sleep 600 & echo $! > " + output_ + "/fake-child";
    std::string shell = "/bin/sh", flag = "-c", text = command;
    char* const arguments[] = {shell.data(), flag.data(), text.data(), nullptr};
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    pid_t pid = 0;
    if (posix_spawn(&pid, shell.c_str(), nullptr, &attributes, arguments, environ) == 0) {
      ::waitpid(pid, nullptr, 0);
    }
    posix_spawnattr_destroy(&attributes);
  }

  StopRequest Stop() const {
    return script_.Get("ignore_stop", 0) != 0 ? StopRequest::kNone : reporter_->stop_requested();
  }

  void Hold() {
    // A test that failed may leave us without a server: its directory goes with it.
    while (Stop() == StopRequest::kNone && !Exists(output_ + "/go") && Exists(output_)) {
      if (reporter_->TakeCheckpointRequest()) Save();
      NoteMemoryUpdate();
      WaitABit();
    }
  }

  void Load(int64_t bytes) {
    reporter_->Phase("loading");
    reporter_->LoadProgress(bytes / 2, bytes);
    Hold();
    reporter_->LoadProgress(bytes, bytes);
  }

  void Replan() {
    blockswap::worker::PlanReport plan;
    plan.plan_json = "{\"fake\":2}";
    plan.plan_text = "another fake plan";
    plan.reason = "MEASURED_TIME";
    plan.step = step_;
    plan.replans = 1;
    reporter_->Replanned(plan);
  }

  // Leaves the newest budget it was told in the file "fake-memory".
  void NoteMemoryUpdate() {
    const std::optional<blockswap::worker::MemoryConfig> update = reporter_->TakeMemoryUpdate();
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
    report.swap.h2d_link_bytes = (step - start_step_) * (script_.Get("link_gib", 0) << 30);
    report.swap.h2d_busy = absl::Seconds(static_cast<double>(report.swap.h2d_link_bytes) /
                                         (1e9 * static_cast<double>(script_.Get("link_gbps", 1))));
    report.swap.forward_stall = absl::Milliseconds(250 * (step - start_step_));
    report.swap.backward_stall = absl::Milliseconds(500 * (step - start_step_));
    report.device_bytes_peak = 4096;
    if (script_.Get("pace", 0) > 0) {
      ::poll(nullptr, 0, static_cast<int>(script_.Get("pace", 0)));
      report.seconds = 0.001 * static_cast<double>(script_.Get("pace", 0));
    }
    if (script_.Get("lifelike", 0) != 0) MakeLifelike(step, report);
    reporter_->Step(report);
    for (int64_t line = 0; line < script_.Get("lines", 1); ++line) {
      std::printf("attempt %d step %lld line %lld\n", attempt_, static_cast<long long>(step),
                  static_cast<long long>(line));
    }
    if (script_.Get("hostile", 0) != 0) {
      std::puts(blockswap::worker::kHostileText);
      reporter_->Warning("FAKE_WARNING", blockswap::worker::kHostileText);
    }
    std::fflush(stdout);
    if (step % script_.Get("save", 1000000) == 0) Save();
  }

  void MakeLifelike(int64_t step, blockswap::worker::StepReport& report) {
    const auto done = static_cast<double>(step);
    const auto made = static_cast<double>(step - start_step_);
    // Not random: a test sees the same curve each time.
    const double noise = std::sin(12.9898 * done) * std::cos(78.233 * done);
    report.loss = 0.06 + 0.26 * std::exp(-done / 60) + 0.03 * noise;
    report.grad_norm = 0.4 + 0.2 * std::abs(noise);
    constexpr int64_t kMiB = int64_t{1} << 20;
    report.swap.h2d_bytes = report.swap.h2d_link_bytes = (step - start_step_) * 640 * kMiB;
    report.swap.h2d_busy = absl::Seconds(0.7 * report.seconds * made);
    report.swap.forward_stall = absl::Seconds(0.02 * report.seconds * made);
    report.swap.backward_stall = absl::Seconds(0.01 * report.seconds * made);
    report.swap.hits = 7 * (step - start_step_);
    report.swap.late = (step - start_step_) / 4;
    report.swap.blocks_on_device = 3;
    report.swap.blocks_on_host = 3;
    report.swap.blocks_in_flight = 1;
    report.device_bytes_peak = 7800 * kMiB;
    blockswap::worker::MemoryReport memory;
    using blockswap::offload::MemoryTag;
    const std::pair<MemoryTag, int64_t> planned[] = {
        {MemoryTag::kRing, 1300},       {MemoryTag::kResidentBlocks, 3600},
        {MemoryTag::kEdgeWeights, 500}, {MemoryTag::kAdapter, 96},
        {MemoryTag::kOptimizer, 192},   {MemoryTag::kActivations, 1900},
        {MemoryTag::kOther, 210}};
    for (const auto& [tag, mib] : planned) {
      const int64_t taken = (tag == MemoryTag::kActivations ? mib - 250 : mib) * kMiB;
      const auto index = static_cast<size_t>(tag);
      memory.planned_bytes[std::string(blockswap::offload::MemoryTagName(tag))] = mib * kMiB;
      memory.measured.current_bytes[index] = taken;
      memory.measured.peak_bytes[index] = taken + 40 * kMiB;
    }
    memory.measured.budget_bytes = 8192 * kMiB;
    memory.host_rss_bytes = 14500 * kMiB;
    memory.host_pinned_bytes = 9600 * kMiB;
    memory.host_master_bytes = 9500 * kMiB;
    reporter_->Memory(memory);
  }

  void Save(bool required = false) {
    if (checkpoints_.has_value()) {
      storage_failure_ = checkpoints_->Save(step_, required, *reporter_);
      return;
    }
    const std::string path = output_ + "/fake-step";
    std::ofstream(path + ".tmp") << step_;
    CrashAt("crash_save");
    std::rename((path + ".tmp").c_str(), path.c_str());
    reporter_->CheckpointCommitted(step_, path, "0000", 8, 0.001);
  }

  int EndWith(const ExitReport& report) {
    End(report);
    return static_cast<int>(report.code);
  }

  int EndStopped(StopRequest stop) {
    CrashAt("crash_stop");
    if (stop != StopRequest::kNow) Save();
    ExitReport report;
    report.code = stop == StopRequest::kSuspend ? ExitCode::kSuspended : ExitCode::kCancelled;
    report.step = step_;
    End(report);
    return static_cast<int>(report.code);
  }

  int EndFailed() {
    const auto code = static_cast<ExitCode>(script_.Get("exit_code", 20));
    if (script_.Get("quiet_exit", 0) == 0) {
      ExitReport report;
      report.code = code;
      report.category = "NUMERICS";
      report.reason = "FAKE_FAILURE";
      report.message =
          script_.Get("hostile", 0) != 0 ? blockswap::worker::kHostileText : "failed on command";
      if (code == ExitCode::kDeviceOutOfMemory) {
        report.category = "OUT_OF_MEMORY_DEVICE";
        report.reason = "DEVICE_OUT_OF_MEMORY";
        report.message = "the ring needs 310.0 MiB, 290.0 MiB are free";
      }
      report.step = step_;
      End(report);
    }
    return static_cast<int>(code);
  }

  const FakeScript script_;
  const std::string output_;
  const int attempt_;
  std::unique_ptr<Reporter> reporter_;
  int64_t step_ = 0, start_step_ = 0;
  std::optional<blockswap::FakeCheckpoints> checkpoints_;
  std::optional<ExitReport> storage_failure_;
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
  std::string text =
      job.is_object() && job.contains("labels") ? job["labels"].value("fake", "") : "";
  // A real server takes no spaces in labels: "steps.5-save.1" says the same.
  if (text.find('=') == std::string::npos)
    text = absl::StrReplaceAll(text, {{"-", " "}, {".", "="}});
  FakeScript script(text);
  std::ofstream(flags["--output"] + "/fake-pid") << ::getpid();
  if (script.Get("ignore_term", 0) != 0) ::signal(SIGTERM, SIG_IGN);
  blockswap::worker::InstallStackDump();
  const std::string token = ReadToken();
  if (token.empty()) return 20;
  while (script.Get("no_attach", 0) != 0) WaitABit();

  ServerChannelOptions options;
  options.socket_path = flags["--socket"];
  options.token = token;
  options.job_uid = flags["--job-uid"];
  options.attempt = std::atoi(flags["--attempt"].c_str());
  options.prints_to_server = true;
  if (script.Get("hasty_exit", 0) != 0) options.exit_timeout = absl::Milliseconds(50);
  if (script.Get("speak_huge", 0) + script.Get("speak_twice", 0) != 0) {
    blockswap::worker::SpeakGarbage(options, script.Get("speak_huge", 0) != 0);
  }
  const int64_t protocol = script.Get("protocol", 1);
  const int64_t protocol_later = script.Get("protocol_later", protocol);
  if (protocol_later != 1 && options.attempt <= script.Get("crash_attempts", 1)) {
    return blockswap::worker::SpeakAnotherProtocol(options, flags["--output"],
                                                   {protocol, protocol_later});
  }
  auto reporter = blockswap::worker::ConnectToServer(options);
  if (!reporter.ok()) {
    std::fprintf(stderr, "%s\n", std::string(reporter.status().message()).c_str());
    return 20;
  }
  FakeTraining training(std::move(script), flags["--output"], options.attempt,
                        *std::move(reporter));
  return training.Run();
}
