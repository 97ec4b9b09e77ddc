// SPDX-License-Identifier: Apache-2.0
// The real program, killed without warning and started again: the result is that of a run nobody
// disturbed.
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/worker/testing/tiny_job.h"

extern char** environ;

namespace blockswap::worker {
namespace {

using testing::ReadRun;
using testing::RunResult;
using testing::TinyJob;
using testing::TinyJobOptions;

constexpr int kPatienceMillis = 120'000;

std::vector<std::string> CommandFor(const TinyJob& job, const std::string& name,
                                    const std::vector<std::string>& overrides) {
  const char* directory = std::getenv("BLOCKSWAP_BIN_DIR");
  std::vector<std::string> words = {
      absl::StrCat(directory == nullptr ? "." : directory, "/blockswap-worker"), "train",
      job.job_file(), "--output", job.output(name)};
  for (const std::string& override_text : overrides) {
    words.push_back("--set");
    words.push_back(override_text);
  }
  return words;
}

pid_t Spawn(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = -1;
  EXPECT_EQ(posix_spawn(&pid, argv[0], nullptr, nullptr, argv.data(), environ), 0) << words[0];
  return pid;
}

int WaitFor(pid_t pid) {
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return status;
}

int64_t LinesOf(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  int64_t lines = 0;
  while (std::getline(in, line)) ++lines;
  return lines;
}

// Blocks until metrics.jsonl in `output` has `lines` lines, told of every write by the system.
// False when time runs out.
bool AwaitLines(const std::string& output, int64_t lines) {
  std::filesystem::create_directories(output);
  const int watch = inotify_init1(IN_CLOEXEC);
  inotify_add_watch(watch, output.c_str(), IN_MODIFY | IN_MOVED_TO | IN_CREATE);
  bool reached = false;
  while (!(reached = LinesOf(output + "/metrics.jsonl") >= lines)) {
    pollfd waiting{watch, POLLIN, 0};
    if (poll(&waiting, 1, kPatienceMillis) <= 0) break;
    char events[4096];
    if (read(watch, events, sizeof(events)) <= 0) break;
  }
  close(watch);
  return reached;
}

// Kills the job once under each of `plans`, lets it end, and compares.
void ExpectTheUndisturbedResult(TinyJobOptions options,
                                const std::vector<std::vector<std::string>>& plans) {
  options.max_steps = 24;
  const TinyJob job(options);
  const std::vector<std::string> saving = {"output.save_every_steps=3",
                                           "training.gradient_accumulation_steps=2"};
  ASSERT_EQ(WaitFor(Spawn(CommandFor(job, "undisturbed", saving))), 0);
  int64_t lines = 5;
  for (const std::vector<std::string>& plan : plans) {
    std::vector<std::string> overrides = saving;
    overrides.insert(overrides.end(), plan.begin(), plan.end());
    std::vector<std::string> command = CommandFor(job, "killed", overrides);
    // Slow copies: the kill arrives in the middle of a step, not after the end.
    command.insert(command.end(), {"--host-copy-latency-seconds", "0.01"});
    const pid_t pid = Spawn(command);
    ASSERT_TRUE(AwaitLines(job.output("killed"), lines));
    kill(pid, SIGKILL);
    const int status = WaitFor(pid);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        << "ended by itself before it was killed";
    lines += 6;
  }
  ASSERT_EQ(WaitFor(Spawn(CommandFor(job, "killed", saving))), 0);

  const RunResult killed = ReadRun(job.output("killed")),
                  expected = ReadRun(job.output("undisturbed"));
  EXPECT_EQ(killed.steps, expected.steps);
  EXPECT_EQ(killed.epochs, expected.epochs);
  EXPECT_EQ(killed.rates, expected.rates);
  EXPECT_EQ(killed.losses, expected.losses);
  EXPECT_FALSE(killed.adapter_tensors.empty());
  EXPECT_TRUE(killed.adapter_tensors == expected.adapter_tensors);
}

TEST(KillTest, KilledThreeTimesUnderThreePlansTheResultIsTheUndisturbedOne) {
  ExpectTheUndisturbedResult({}, {{"memory.blocks_to_swap=4", "memory.ring_size=1"},
                                  {"memory.blocks_to_swap=3", "memory.mode=exchange"},
                                  {"memory.blocks_to_swap=5"}});
}

TEST(KillTest, SoItIsWhenTheBaseTrains) {
  TinyJobOptions options;
  options.trains_base = true;
  ExpectTheUndisturbedResult(
      options, {{"memory.blocks_to_swap=4", "memory.ring_size=1"}, {"memory.blocks_to_swap=5"}});
}

TEST(KillTest, SigtermLeavesACheckpointAndExitCodeThree) {
  TinyJobOptions options;
  options.max_steps = 1000;
  const TinyJob job(options);
  const pid_t pid = Spawn(CommandFor(job, "terminated", {"memory.blocks_to_swap=4"}));
  ASSERT_TRUE(AwaitLines(job.output("terminated"), 2));
  kill(pid, SIGTERM);
  const int status = WaitFor(pid);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 3);
  const RunResult run = ReadRun(job.output("terminated"));
  EXPECT_TRUE(std::filesystem::exists(absl::StrCat(job.output("terminated"), "/checkpoints")));
  EXPECT_FALSE(std::filesystem::is_empty(job.output("terminated") + "/checkpoints"));
  EXPECT_LT(run.steps.size(), 1000u);
}

}  // namespace
}  // namespace blockswap::worker
