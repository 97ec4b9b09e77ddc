// SPDX-License-Identifier: Apache-2.0
// Rows 20 and 24: a start that finds a state store it cannot use, or another server.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/wall_clock.h"
#include "server/store/database.h"
#include "server/store/job_store.h"
#include "server/store/schema.h"
#include "server/store/store_file.h"
#include "tests/server/testing/daemon_process.h"
#include "tests/server/testing/http_client.h"
#include "tests/server/testing/test_certificates.h"
#include "tests/server/testing/test_server.h"

namespace blockswap::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr int kStoreUnusable = 3;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Ended {
  int code = -1;  // -1: it had to be killed
  std::string text;
};

// The real blockswapd, which is expected to end by itself.
Ended RunBlockswapd(const std::string& directory, std::vector<std::string> arguments) {
  const std::string output = directory + "/blockswapd.output";
  arguments.insert(arguments.begin(), ::getenv("BLOCKSWAPD"));
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t pid = 0;
  EXPECT_EQ(posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  Ended ended;
  int status = 0;
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
      ended.text = ReadFile(output);
      return ended;
    }
    ::poll(nullptr, 0, 2);
  }
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  ended.text = ReadFile(output);
  return ended;
}

int64_t NumJobs(JobStore& store) {
  const auto counts = store.CountJobs();
  EXPECT_TRUE(counts.ok()) << counts.status();
  int64_t jobs = 0;
  for (const auto& [state, number] : *counts) jobs += number;
  return jobs;
}

class StartupFaultsTest : public ::testing::Test {
 protected:
  // Where `config` says, without anything that looks at the machine.
  static std::vector<std::string> Arguments(const ServerConfig& config) {
    return {"--state-dir",
            config.state_dir,
            "--socket",
            config.socket,
            "--http",
            config.http,
            "--worker",
            config.worker,
            "--host-budget",
            "1GiB",
            "--models",
            config.models,
            "--datasets",
            config.datasets,
            "--outputs",
            config.outputs,
            "--measure-links=false"};
  }
  Ended Start() const {
    return RunBlockswapd(directory_.path(), Arguments(TestConfig(directory_.path())));
  }
  Ended CheckStore() const {
    return RunBlockswapd(directory_.path(),
                         {"--state-dir", directory_.path() + "/state", "--check-store"});
  }
  // A store with some jobs. Killed, the server leaves its write-ahead log; stopped, none.
  void MakeJobs(int signal) {
    DaemonProcess daemon(directory_.path());
    ASSERT_TRUE(daemon.ready());
    DaemonClient client(directory_.path());
    v1::Job job;
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(client.TryCreate("steps=1", "", &job, "cuda:9").ok());
    }
    daemon.End(signal);
  }

  TemporaryDirectory directory_;
  const std::string store_ = StoreFileOf(directory_.path() + "/state");
};

using Row20 = StartupFaultsTest;

TEST_F(Row20, AStoreThatIsNoneIsRefusedWithWhatToDoAndLeftAsItIs) {
  MakeJobs(SIGTERM);
  const std::string sound = ReadFile(store_);
  for (const std::string& bytes : {std::string(), std::string(8192, 'x'), sound.substr(0, 1000),
                                   sound.substr(0, sound.size() / 2)}) {
    std::ofstream(store_, std::ios::binary | std::ios::trunc) << bytes;
    const Ended refused = Start();
    EXPECT_EQ(refused.code, kStoreUnusable) << bytes.size() << " bytes: " << refused.text;
    EXPECT_THAT(refused.text, AllOf(HasSubstr(store_), HasSubstr("--check-store"),
                                    HasSubstr("backups/"), HasSubstr(".bak"), HasSubstr("move")));
    EXPECT_EQ(ReadFile(store_), bytes);
    EXPECT_EQ(CheckStore().code, kStoreUnusable) << bytes.size();
  }
  // The way back that the message names.
  std::ofstream(store_, std::ios::binary | std::ios::trunc) << sound;
  DaemonProcess daemon(directory_.path());
  ASSERT_TRUE(daemon.ready());
  grpc::ClientContext context;
  v1::ListJobsResponse jobs;
  DaemonClient client(directory_.path());
  ASSERT_TRUE(client.stub().ListJobs(&context, v1::ListJobsRequest(), &jobs).ok());
  EXPECT_EQ(jobs.jobs_size(), 20);
}

// SQLite alone would make an empty store and drop the log, which has all jobs.
TEST_F(Row20, AStoreThatWentMissingBesideItsLogIsNotMadeAnew) {
  MakeJobs(SIGKILL);
  const std::string log = ReadFile(store_ + "-wal");
  ASSERT_GT(log.size(), 0u);
  fs::remove(store_);
  const Ended refused = Start();
  EXPECT_EQ(refused.code, kStoreUnusable) << refused.text;
  EXPECT_THAT(refused.text, AllOf(HasSubstr("is missing"), HasSubstr("-wal has")));
  EXPECT_FALSE(fs::exists(store_));
  EXPECT_EQ(ReadFile(store_ + "-wal"), log);
}

TEST_F(Row20, AStoreOfANewerVersionIsRefusedWithWhatToDo) {
  MakeJobs(SIGTERM);
  {
    auto database = Database::Open(store_, /*read_only=*/false);
    ASSERT_TRUE(database.ok()) << database.status();
    ASSERT_TRUE((*database)
                    ->Execute(absl::StrCat("PRAGMA user_version=", CurrentSchemaVersion() + 1))
                    .ok());
  }
  const std::string before = ReadFile(store_);
  const Ended refused = Start();
  EXPECT_EQ(refused.code, kStoreUnusable) << refused.text;
  EXPECT_THAT(refused.text,
              AllOf(HasSubstr(store_), HasSubstr("newer blockswapd"), HasSubstr(".bak")));
  EXPECT_EQ(ReadFile(store_), before);
}

TEST_F(Row20, CheckStoreTellsSoundFromDamagedWithAndWithoutAServer) {
  EXPECT_EQ(CheckStore().code, 1);  // there is none
  MakeJobs(SIGTERM);
  {
    DaemonProcess daemon(directory_.path());
    ASSERT_TRUE(daemon.ready());
    const Ended beside = CheckStore();
    EXPECT_EQ(beside.code, 0) << beside.text;
    EXPECT_EQ(daemon.End(SIGTERM), 0);
  }
  const Ended sound = CheckStore();
  EXPECT_EQ(sound.code, 0) << sound.text;
  EXPECT_THAT(sound.text, AllOf(HasSubstr(store_ + ": sound"),
                                HasSubstr(absl::StrCat("schema ", CurrentSchemaVersion()))));
  {
    std::fstream file(store_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(fs::file_size(store_) / 2));
    file << std::string(16384, '\x5a');
  }
  const Ended damaged = CheckStore();
  EXPECT_EQ(damaged.code, kStoreUnusable) << damaged.text;
  EXPECT_THAT(damaged.text, HasSubstr("damaged"));
}

// Also row 42: the first start, and the first one of a newer version.
TEST_F(Row20, KilledAtAnyWriteOfItsFirstStartOrOfAMigrationTheNextStartFindsEverything) {
  std::stringstream sql;
  sql << std::ifstream(::getenv("BLOCKSWAP_SCHEMA_V1")).rdbuf();
  ASSERT_FALSE(sql.str().empty());
  // Neither old enough to be forgotten nor able to run.
  sql << "; UPDATE jobs SET requested_device='cuda:9', end_micros=" << WallMicros()
      << " WHERE end_micros > 0; UPDATE jobs SET requested_device='cuda:9';";
  for (const bool migrates : {false, true}) {
    int deaths = 0;
    bool survived = false;
    // Each of the first writes, then some.
    for (int write = 1; !survived && write < 2000; write += write < 6 ? 1 : write / 2) {
      SCOPED_TRACE(absl::StrCat(migrates ? "migration" : "first start", ", write ", write));
      TemporaryDirectory directory;
      const std::string state = directory.path() + "/state", store = StoreFileOf(state);
      if (migrates) {
        fs::create_directories(state);
        auto database = Database::Open(store, /*read_only=*/false);
        ASSERT_TRUE(database.ok() && (*database)->Execute(sql.str()).ok());
      }
      {
        DaemonProcess dies(directory.path(), {absl::StrCat("fatal_start_write=", write)});
        survived = dies.ready();
        deaths += survived ? 0 : 1;
      }
      const auto opened = JobStore::Open(store);
      ASSERT_TRUE(opened.ok()) << opened.status();
      EXPECT_TRUE((*opened)->Check()->problems.empty());
      EXPECT_EQ(NumJobs(**opened), migrates ? 3 : 0);
      if (!migrates) continue;
      auto copy = Database::Open(store + ".v1.bak", /*read_only=*/true);
      ASSERT_TRUE(copy.ok()) << copy.status();
      auto query = (*copy)->Prepare("SELECT COUNT(*) FROM jobs");
      ASSERT_TRUE(query.Step().ok());
      EXPECT_EQ(query.Int(0), 3);
    }
    EXPECT_TRUE(survived);
    EXPECT_GE(deaths, 6);
  }
}

class TwoServersTest : public StartupFaultsTest {
 protected:
  void SetUp() override {
    const PemPair pair = authority_.Issue({"localhost", "DNS:localhost"});
    WriteTextFile(directory_.path() + "/tls.crt", pair.certificate, 0644);
    WriteTextFile(directory_.path() + "/tls.key", pair.key, 0600);
  }
  void UseTls(ServerConfig& config) const {
    config.tls_certificate = directory_.path() + "/tls.crt";
    config.tls_key = directory_.path() + "/tls.key";
  }

  const TestAuthority authority_{"servers"};
};

using Row24 = TwoServersTest;

TEST_F(Row24, TheSecondEndsAtOnceAndNamesTheFirstWhichIsUnharmed) {
  TestServer first(directory_.path(), [this](ServerConfig& config) {
    config.http = "127.0.0.1:0";
    config.listen = "localhost:0";
    UseTls(config);
  });
  const v1::Job job = first.MustCreate("job", "steps=4 hold_at=3");
  first.WaitState(job.name(), v1::JOB_STATE_RUNNING);
  const ServerConfig same = TestConfig(directory_.path());
  const std::string holder = absl::StrCat("(pid ", ::getpid(), ")");

  ServerConfig linked = same;
  linked.state_dir = directory_.path() + "/link";
  fs::create_directory_symlink(same.state_dir, linked.state_dir);
  linked.socket = directory_.path() + "/run2/d.sock";

  ServerConfig other_state = same;
  other_state.state_dir += "-other";

  ServerConfig same_page = other_state;
  same_page.socket = directory_.path() + "/run2/d.sock";
  same_page.http = absl::StrCat("127.0.0.1:", first.daemon().http_port());

  ServerConfig same_port = same_page;
  same_port.http = "off";
  const std::string port = absl::StrCat("localhost:", first.daemon().tcp_port());
  std::vector<std::string> with_tls = Arguments(same_port);
  UseTls(same_port);
  for (const std::string& argument :
       {std::string("--listen"), port, std::string("--tls-key"), same_port.tls_key,
        std::string("--tls-certificate"), same_port.tls_certificate}) {
    with_tls.push_back(argument);
  }

  const struct {
    std::vector<std::string> arguments;
    std::string says;
  } seconds[] = {{Arguments(same), holder},
                 {Arguments(linked), holder},
                 {Arguments(other_state), holder},
                 {Arguments(same_page), same_page.http},
                 {with_tls, port}};
  for (const auto& second : seconds) {
    const auto begin = std::chrono::steady_clock::now();
    const Ended ended = RunBlockswapd(directory_.path(), second.arguments);
    EXPECT_EQ(ended.code, 1) << ended.text;
    EXPECT_THAT(ended.text, HasSubstr(second.says));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10)) << second.says;
    // The first answers on its socket, its page and its port as before, on new connections, too.
    DaemonClient client(directory_.path());
    EXPECT_EQ(client.Get(job.name()).state(), v1::JOB_STATE_RUNNING) << second.says;
    EXPECT_EQ(HttpFetch(first.daemon().http_port(), "/readyz").status, 200) << second.says;
  }
  LetGo(job);
  const v1::Job done = first.WaitTerminal(job.name());
  EXPECT_EQ(done.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(done.attempt(), 1);
}

}  // namespace
}  // namespace blockswap::server
