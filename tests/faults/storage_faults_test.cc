// SPDX-License-Identifier: Apache-2.0
// Rows 16, 17, 18 and 21: files that are torn, damaged, too large, or gone. The fake worker's
// checkpoints are real ones here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iomanip>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/server/testing/daemon_process.h"
#include "tests/server/testing/metrics_page.h"
#include "tests/server/testing/test_server.h"
#include "worker/io/checkpoint_directory.h"

namespace blockswap::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class StorageFaultsTest : public ::testing::Test {
 protected:
  static std::string Checkpoint(const v1::Job& job, int step) {
    std::ostringstream path;
    path << job.output_directory() << "/checkpoints/step-" << std::setfill('0') << std::setw(8)
         << step;
    return path.str();
  }
  static std::vector<v1::JobEvent> Events(TestServer& server, const std::string& name) {
    grpc::ClientContext context;
    v1::ListJobEventsRequest request;
    request.set_parent(name);
    request.set_page_size(1000);
    v1::ListJobEventsResponse response;
    EXPECT_TRUE(server.training().ListJobEvents(&context, request, &response).ok());
    return {response.events().begin(), response.events().end()};
  }
  static std::vector<std::string> Messages(const std::vector<v1::JobEvent>& events,
                                           const std::string& reason) {
    std::vector<std::string> messages;
    for (const v1::JobEvent& event : events) {
      if (event.reason() == reason) messages.push_back(event.message());
    }
    return messages;
  }
  // The stored event that `is_it` means, once there is one; another one after half a minute.
  static v1::JobEvent Await(TestServer& server, const std::string& name,
                            const std::function<bool(const v1::JobEvent&)>& is_it) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (std::chrono::steady_clock::now() < deadline) {
      for (const v1::JobEvent& event : Events(server, name)) {
        if (is_it(event)) return event;
      }
      ::poll(nullptr, 0, 2);
    }
    ADD_FAILURE() << "no such event of " << name;
    return v1::JobEvent();
  }
  static bool IsUnavailable(const v1::JobEvent& event) {
    return event.reason() == "OUTPUT_UNAVAILABLE";
  }
  static void Append(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::app) << bytes;
  }
  static void WaitForStep(TestServer& server, const std::string& name, int64_t step) {
    server.Watch(name, [step](const v1::JobEvent& event) {
      return event.progress().step() >= step || event.type() == v1::JobEvent::TYPE_END;
    });
  }

  TemporaryDirectory directory_;
};

using Row16 = StorageFaultsTest;
using Row17 = StorageFaultsTest;
using Row18 = StorageFaultsTest;
using Row21 = StorageFaultsTest;

// A power cut takes server and worker, and leaves half a line, half a character, half a frame.
TEST_F(Row16, TornEndsOfLogsAreToleratedAndTheManifestDecides) {
  v1::Job job;
  const std::string state = directory_.path() + "/state";
  {
    DaemonProcess daemon(directory_.path());
    ASSERT_TRUE(daemon.ready());
    DaemonClient client(directory_.path());
    job = client.Create("steps=6 save=2 hold_at=6 real_save");
    EXPECT_TRUE(client.WatchUntil(
        job.name(), [](const v1::JobEvent& event) { return event.progress().step() == 5; }));
    const pid_t worker = FakeWorkerPid(job);
    daemon.End(SIGKILL);
    ::kill(worker, SIGKILL);
    EXPECT_TRUE(IsGone(worker));
  }
  LetGo(job);
  Append(job.output_directory() + "/attempt-1.log", "half a line, half a char\xe2\x82");
  Append(job.output_directory() + "/attempt-1.log.times", "half");
  Append(state + "/audit.jsonl", R"({"time":"2026-)");
  Append(state + "/jobs.db-wal", std::string(100, '\x5a'));
  // Was being written: no manifest.
  fs::create_directories(Checkpoint(job, 5));
  Append(Checkpoint(job, 5) + "/state.bin", "all that was written");

  DaemonProcess daemon(directory_.path());
  ASSERT_TRUE(daemon.ready());
  DaemonClient client(directory_.path());
  const v1::Job done = client.WaitTerminal(job.name());
  EXPECT_EQ(done.state(), v1::JOB_STATE_SUCCEEDED);
  const auto attempts = client.Attempts(job.name());
  ASSERT_EQ(attempts.size(), 2u);
  EXPECT_EQ(attempts[1].start_step(), 4);
  EXPECT_THAT(client.Log(job.name(), 1),
              AllOf(HasSubstr("attempt 1 step 5 line 0\n"), HasSubstr("half a char")));
  EXPECT_THAT(client.Log(job.name(), 2), HasSubstr("attempt 2 step 6 line 0\n"));
  client.Cancel(job.name());  // one more call that is written down, if it changes nothing
  EXPECT_EQ(daemon.End(SIGTERM), 0);
  // The line between that of the submit and that of the cancel is torn, they are whole.
  std::ifstream audit(state + "/audit.jsonl");
  int torn = 0, whole = 0;
  for (std::string line; std::getline(audit, line);) {
    ++(nlohmann::json::accept(line) ? whole : torn);
  }
  EXPECT_EQ(torn, 1);
  EXPECT_EQ(whole, 2);
}

// F013, F017: a manifest that is missing, files that are cut short or empty.
TEST_F(Row17, ADamagedCheckpointIsSkippedWithAnEventAndTheOneBeforeItIsUsed) {
  const std::map<std::string, std::function<void(const std::string&)>> damages = {
      {"truncated", [](const std::string& path) { fs::resize_file(path + "/state.bin", 1000); }},
      {"emptied", [](const std::string& path) { fs::resize_file(path + "/state.bin", 0); }},
      {"flipped",
       [](const std::string& path) {
         std::fstream file(path + "/state.bin", std::ios::in | std::ios::out | std::ios::binary);
         file.seekp(1000);
         file.put('\x01');
       }},
      {"without its manifest",
       [](const std::string& path) { fs::remove(path + "/manifest.json"); }},
      {"with half a manifest", [](const std::string& path) {
         fs::resize_file(path + "/manifest.json", fs::file_size(path + "/manifest.json") / 2);
       }}};
  TestServer server(directory_.path());
  for (const auto& [how, damage] : damages) {
    SCOPED_TRACE(how);
    const v1::Job job = server.MustCreate("job", "steps=7 save=2 hold_at=6 real_save");
    WaitForStep(server, job.name(), 5);
    const pid_t worker = FakeWorkerPid(job);
    ::kill(worker, SIGSTOP);  // so that it lets nothing happen meanwhile
    damage(Checkpoint(job, 4));
    ::kill(worker, SIGKILL);
    Await(server, job.name(), [](const v1::JobEvent& event) {
      return event.attempt() == 2 && event.type() == v1::JobEvent::TYPE_CHECKPOINT_COMMITTED;
    });
    // It made the damaged one anew, and nobody has touched the good one.
    EXPECT_TRUE(worker::VerifyCheckpoint(Checkpoint(job, 2)).ok());
    EXPECT_TRUE(worker::VerifyCheckpoint(Checkpoint(job, 4)).ok());
    LetGo(job);
    EXPECT_EQ(server.WaitTerminal(job.name()).state(), v1::JOB_STATE_SUCCEEDED);
    const auto attempts = server.Attempts(job.name());
    ASSERT_EQ(attempts.size(), 2u);
    EXPECT_EQ(attempts[1].start_step(), 2);
    const auto told = Messages(Events(server, job.name()), "CHECKPOINT_CORRUPT");
    ASSERT_EQ(told.size(), 1u);
    EXPECT_THAT(told[0], HasSubstr("step-00000004: "));
    const v1::Job done = server.Get(job.name());
    EXPECT_THAT(std::vector<std::string>(done.warnings().begin(), done.warnings().end()),
                ::testing::Contains(told[0]));
  }
}

TEST_F(Row17, WithoutAnyGoodCheckpointItBeginsAnewAndSaysWhichItSkipped) {
  TestServer server(directory_.path());
  const v1::Job job = server.MustCreate("job", "steps=6 save=2 hold_at=6 real_save");
  WaitForStep(server, job.name(), 5);
  const pid_t worker = FakeWorkerPid(job);
  ::kill(worker, SIGSTOP);
  for (const int step : {2, 4}) fs::resize_file(Checkpoint(job, step) + "/state.bin", 10);
  ::kill(worker, SIGKILL);
  LetGo(job);
  EXPECT_EQ(server.WaitTerminal(job.name()).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(server.Attempts(job.name()).at(1).start_step(), 0);
  EXPECT_EQ(Messages(Events(server, job.name()), "CHECKPOINT_CORRUPT").size(), 2u);
}

// F015, F018 with the real worker: tests/worker/train/trainer_test, saving_faults_test.
TEST_F(Row18, TwoSavesWithoutRoomAreWarningsAndTrainingGoesOn) {
  TestServer server(directory_.path(), [](ServerConfig& config) { config.http = "127.0.0.1:0"; });
  const v1::Job job = server.MustCreate("full", "steps=6 save=1 real_save full_from=3 full_to=4");
  const v1::Job done = server.WaitTerminal(job.name());
  EXPECT_EQ(done.state(), v1::JOB_STATE_SUCCEEDED) << done.state_message();
  EXPECT_EQ(done.attempt(), 1);
  const auto told = Messages(Events(server, job.name()), "DISK_FULL");
  ASSERT_EQ(told.size(), 2u);
  EXPECT_THAT(told[0], AllOf(HasSubstr("bytes needed"), HasSubstr(" free"),
                             HasSubstr("last good checkpoint is of step 2")));
  EXPECT_EQ(done.warnings_size(), 2);
  EXPECT_FALSE(fs::exists(Checkpoint(job, 3)));
  for (const int step : {1, 2, 5, 6}) {
    EXPECT_TRUE(worker::VerifyCheckpoint(Checkpoint(job, step)).ok()) << step;
  }
  EXPECT_TRUE(AwaitMetrics(server.daemon().http_port(), [](const std::string& page) {
    return absl::StrContains(page, "blockswap_checkpoint_writes_total{result=\"failed\"} 2\n");
  }));
}

TEST_F(Row18, TheThirdSaveInARowWithoutRoomFailsTheJobForStorageAndIsNotRetried) {
  TestServer server(directory_.path());
  const v1::Job job = server.MustCreate("full", "steps=8 save=1 real_save full_from=3 full_to=99");
  const v1::Job done = server.WaitTerminal(job.name());
  EXPECT_EQ(done.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(done.failure().category(), v1::FAILURE_CATEGORY_STORAGE);
  EXPECT_EQ(done.failure().reason(), "DISK_FULL");
  EXPECT_EQ(done.failure().step(), 5);
  EXPECT_THAT(done.failure().message(),
              AllOf(HasSubstr(job.output_directory()), HasSubstr("bytes needed"),
                    HasSubstr("last good checkpoint is of step 2")));
  EXPECT_EQ(done.attempt(), 1);
  EXPECT_EQ(Messages(Events(server, job.name()), "DISK_FULL").size(), 3u);  // two, and the end
  EXPECT_TRUE(worker::VerifyCheckpoint(Checkpoint(job, 2)).ok());
  // Nothing half-made lies about.
  for (const auto& entry : fs::directory_iterator(job.output_directory() + "/checkpoints")) {
    EXPECT_TRUE(worker::VerifyCheckpoint(entry.path()).ok()) << entry.path();
  }
}

// Deleted, or with its file system unmounted: a new one would begin the job from nothing.
TEST_F(Row21, AnOutputDirectoryThatIsGoneIsWaitedForABoundedNumberOfTimes) {
  TestServer server(directory_.path());
  const v1::Job job = server.MustCreate("job", "steps=6 save=1 hold_at=4 real_save");
  WaitForStep(server, job.name(), 3);
  const pid_t worker = FakeWorkerPid(job);
  ::kill(worker, SIGSTOP);
  const std::string aside = directory_.path() + "/aside";
  fs::rename(job.output_directory(), aside);
  ::kill(worker, SIGKILL);
  const v1::Job done = server.WaitTerminal(job.name());
  EXPECT_EQ(done.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(done.failure().category(), v1::FAILURE_CATEGORY_STORAGE);
  EXPECT_EQ(done.failure().reason(), "OUTPUT_UNAVAILABLE");
  EXPECT_THAT(done.state_message(), AllOf(HasSubstr(job.output_directory()), HasSubstr("is gone"),
                                          HasSubstr("the limit of 3 restarts")));
  EXPECT_FALSE(fs::exists(job.output_directory()));
  const auto attempts = server.Attempts(job.name());
  ASSERT_EQ(attempts.size(), 4u);
  for (size_t i = 1; i < attempts.size(); ++i) {
    EXPECT_EQ(attempts[i].failure().category(), v1::FAILURE_CATEGORY_STORAGE);
    EXPECT_EQ(attempts[i].device(), "devices/host");
    EXPECT_TRUE(attempts[i].has_start_time());
  }
}

TEST_F(Row21, AJobGoesOnAtItsCheckpointOnceItsOutputDirectoryIsBack) {
  TestServer server(directory_.path());
  v1::CreateJobRequest request = server.Request("job", "steps=6 save=1 hold_at=4 real_save");
  // Backoff doubles from a hundredth of a second on: the last ones are longer than any test.
  request.mutable_spec()->mutable_retry()->set_max_restarts(20);
  v1::Job job;
  ASSERT_TRUE(server.Create(request, &job).ok());
  WaitForStep(server, job.name(), 3);
  const pid_t worker = FakeWorkerPid(job);
  ::kill(worker, SIGSTOP);
  const std::string aside = directory_.path() + "/aside";
  fs::rename(job.output_directory(), aside);
  ::kill(worker, SIGKILL);
  Await(server, job.name(), IsUnavailable);
  Append(aside + "/go", "go");
  fs::rename(aside, job.output_directory());
  const v1::Job done = server.WaitTerminal(job.name());
  EXPECT_EQ(done.state(), v1::JOB_STATE_SUCCEEDED) << done.state_message();
  const auto attempts = server.Attempts(job.name());
  EXPECT_EQ(attempts.back().start_step(), 3);
  EXPECT_TRUE(worker::VerifyCheckpoint(Checkpoint(job, 6)).ok());
}

// The worker finds out: its saves fail while it trains.
TEST_F(Row21, SavesThatFailWithTheirPathEndTheAttemptAndTheNextOneGoesOn) {
  TestServer server(directory_.path());
  v1::CreateJobRequest request = server.Request("job", "steps=7 save=1 hold_at=3 real_save");
  request.mutable_spec()->mutable_retry()->set_max_restarts(20);
  v1::Job job;
  ASSERT_TRUE(server.Create(request, &job).ok());
  WaitForStep(server, job.name(), 2);
  const std::string folder = job.output_directory() + "/checkpoints";
  fs::rename(folder, folder + ".aside");
  Append(folder, "a file in the way");
  // Until it is out of the way again no attempt begins.
  ASSERT_TRUE(server.daemon().store().SetQueuePause(QueuePause{"repairs", 0}).ok());
  LetGo(job);
  server.Watch(job.name(), [](const v1::JobEvent& event) {
    return event.state() == v1::JOB_STATE_RECOVERING || event.type() == v1::JobEvent::TYPE_END;
  });
  fs::remove(folder);
  fs::rename(folder + ".aside", folder);
  ASSERT_TRUE(server.daemon().store().SetQueuePause(std::nullopt).ok());
  const v1::Job done = server.WaitTerminal(job.name());
  EXPECT_EQ(done.state(), v1::JOB_STATE_SUCCEEDED) << done.state_message();
  const auto first = server.Attempts(job.name()).at(0);
  EXPECT_EQ(first.failure().category(), v1::FAILURE_CATEGORY_STORAGE);
  EXPECT_EQ(first.failure().reason(), "SAVE_FAILED");
  EXPECT_TRUE(first.failure().retryable());
  EXPECT_THAT(first.failure().message(), HasSubstr(folder));
  EXPECT_EQ(first.failure().step(), 5);
}

TEST_F(Row21, AReadOnlyFileSystemIsSaidWithItsPathAndWaitedFor) {
  const std::string outputs = directory_.path() + "/outputs";
  fs::create_directories(outputs);
  if (::mount("none", outputs.c_str(), "tmpfs", 0, "size=8m") != 0) {
    GTEST_SKIP() << "mounting needs CAP_SYS_ADMIN";
  }
  ASSERT_EQ(::mount("none", outputs.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "size=8m"), 0);
  {
    TestServer server(directory_.path());
    v1::CreateJobRequest request = server.Request("job", "steps=2 save=1 real_save");
    request.mutable_spec()->mutable_retry()->set_max_restarts(20);
    v1::Job job;
    ASSERT_TRUE(server.Create(request, &job).ok());
    const v1::JobEvent told = Await(server, job.name(), IsUnavailable);
    EXPECT_THAT(told.message(),
                AllOf(HasSubstr(job.output_directory()), HasSubstr("Read-only file system")));
    EXPECT_EQ(told.state(), v1::JOB_STATE_RECOVERING);
    EXPECT_EQ(::mount("none", outputs.c_str(), "tmpfs", MS_REMOUNT, "size=8m"), 0);
    EXPECT_EQ(server.WaitTerminal(job.name()).state(), v1::JOB_STATE_SUCCEEDED);
  }
  ::umount2(outputs.c_str(), MNT_DETACH);
}

}  // namespace
}  // namespace blockswap::server
