// SPDX-License-Identifier: Apache-2.0
// Rows 28, 29 and F049: watchers that do not read, that are too many, that are gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "server/rpc/rpc_server.h"
#include "tests/faults/wire_client.h"
#include "tests/server/testing/daemon_process.h"
#include "tests/server/testing/metric_text.h"
#include "tests/server/testing/metrics_page.h"
#include "tests/server/testing/test_server.h"

namespace blockswap::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMiB = int64_t{1} << 20;
// Freed memory stays in a sanitizer's quarantine: bounds say nothing there.
#ifdef BLOCKSWAP_SANITIZED
constexpr bool kMeasuresMemory = false;
#else
constexpr bool kMeasuresMemory = true;
#endif

bool Await(const std::function<bool()>& done) {
  const auto deadline = Clock::now() + std::chrono::seconds(30);
  while (!done()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

class StreamFaultsTest : public ::testing::Test {
 protected:
  void Start(double bookmark_seconds) {
    server_ =
        std::make_unique<TestServer>(directory_.path(), [bookmark_seconds](ServerConfig& config) {
          config.http = "127.0.0.1:0";
          config.bookmark_seconds = bookmark_seconds;
        });
  }
  const std::string& socket() { return server_->daemon().config().socket; }
  bool AwaitMetric(const std::string& series, double value) {
    return AwaitMetrics(server_->daemon().http_port(), [&](const std::string& page) {
      return TextValueOf(page, series) == value;
    });
  }
  // 200 events of 16 KiB in one transaction.
  void Flood(const std::string& id) {
    const auto written = server_->daemon().store().UpdateJob(id, [](JobRecord&, JobChange& change) {
      for (int i = 0; i < 200; ++i) {
        change.events.push_back(
            MakeEvent(EventType::kWarning, "FLOOD", std::string(16 << 10, 'x')));
      }
      return absl::OkStatus();
    });
    ASSERT_TRUE(written.ok()) << written.status();
  }

  const TemporaryDirectory directory_;
  std::unique_ptr<TestServer> server_;
};

using Row28 = StreamFaultsTest;
using Row29 = StreamFaultsTest;

constexpr char kOpenWatches[] = "blockswap_watch_streams{kind=\"events\"}";
constexpr char kSlowWatches[] = "blockswap_watch_dropped_total{reason=\"slow_consumer\"}";

// They get neither their events nor the END that tells them why: one half gives its streams no
// room, the other takes no byte at all.
TEST_F(Row28, StalledWatchersAreCutTakeBoundedMemoryAndHoldNobodyUp) {
  constexpr int kStalled = 64;
  constexpr int kFloods = 16;  // 50 MiB of events, for each of them
  constexpr int64_t kMostBytes = kStalled * kMiB;
  Start(/*bookmark_seconds=*/0.5);
  const std::string bytes = RecordWatch(directory_.path(), socket(), v1::WatchJobsRequest());
  ASSERT_TRUE(AwaitMetric(kOpenWatches, 0));
  std::vector<UniqueFd> quiet(kStalled / 2), deaf(kStalled / 2);
  for (std::vector<UniqueFd>* sockets : {&quiet, &deaf}) {
    for (UniqueFd& socket_of_one : *sockets) {
      socket_of_one = ConnectTo(socket());
      ASSERT_TRUE(SendAll(socket_of_one, bytes));
    }
  }
  const SilentReader reader(quiet);
  ASSERT_TRUE(AwaitMetric(kOpenWatches, kStalled));
  JobRecord job;
  job.id = job.uid = "flood";
  job.state = JobState::kSuspended;
  ASSERT_TRUE(server_->daemon().store().CreateJob(job, "", "", 1000).ok());
  const ProcessUse before = UseOf(::getpid());
  int64_t most_bytes = 0;
  for (int i = 0; i < kFloods; ++i) {
    Flood("flood");
    EXPECT_EQ(server_->Get("jobs/flood").state(), v1::JOB_STATE_SUSPENDED);
    most_bytes = std::max(most_bytes, UseOf(::getpid()).resident_bytes - before.resident_bytes);
  }
  EXPECT_TRUE(IsServing(server_->channel()));
  EXPECT_TRUE(AwaitMetric(kSlowWatches, kStalled));
  most_bytes = std::max(most_bytes, UseOf(::getpid()).resident_bytes - before.resident_bytes);
  RecordProperty("most_bytes", absl::StrCat(most_bytes));
  if (kMeasuresMemory) {
    EXPECT_LT(most_bytes, kMostBytes) << "for " << kStalled << " streams";
  }
  // The streams of those who are there end without their help, and their places are free. What
  // takes no byte is ended with its connection, by the keepalive (F049) or as here.
  EXPECT_TRUE(AwaitMetrics(server_->daemon().http_port(), [](const std::string& page) {
    return TextValueOf(page, kOpenWatches) <= kStalled / 2;
  }));
  deaf.clear();
  EXPECT_TRUE(AwaitMetric(kOpenWatches, 0));
}

// Counts what becomes of many watches.
struct Outcome {
  std::mutex mutex;
  std::condition_variable changed;
  int open = 0, refused = 0, done = 0;
  std::string other;  // of an end that is no refusal
};

class Watcher final : public grpc::ClientReadReactor<v1::JobEvent> {
 public:
  Watcher(v1::TrainingService::Stub& stub, Outcome& outcome) : outcome_(outcome) {
    request_.set_include_snapshot(true);
    stub.async()->WatchJobs(&context_, &request_, this);
    StartRead(&event_);
    StartCall();
  }
  void Cancel() { context_.TryCancel(); }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (event_.type() == v1::JobEvent::TYPE_SNAPSHOT_END) {
      const std::lock_guard<std::mutex> lock(outcome_.mutex);
      ++outcome_.open;
      outcome_.changed.notify_all();
    }
    StartRead(&event_);
  }
  void OnDone(const grpc::Status& status) override {
    const std::lock_guard<std::mutex> lock(outcome_.mutex);
    ++outcome_.done;
    if (ErrorReason(status) == "TOO_MANY_STREAMS" &&
        status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) {
      ++outcome_.refused;
    } else if (status.error_code() != grpc::StatusCode::CANCELLED) {
      outcome_.other = status.error_message();
    }
    outcome_.changed.notify_all();
  }

  Outcome& outcome_;
  grpc::ClientContext context_;
  v1::WatchJobsRequest request_;
  v1::JobEvent event_;
};

TEST_F(Row29, OfAThousandWatchersTheLimitIsLetInAndHealthStillAnswers) {
  constexpr int kWatchers = 1000, kConnections = 4;
  Start(/*bookmark_seconds=*/15);
  const int limit = TrainingServiceOptions().max_streams;
  ASSERT_LT(limit, kWatchers);
  std::vector<std::unique_ptr<v1::TrainingService::Stub>> stubs;
  for (int i = 0; i < kConnections; ++i)
    stubs.push_back(v1::TrainingService::NewStub(ChannelTo(socket())));
  Outcome outcome;
  std::vector<std::unique_ptr<Watcher>> watchers;
  for (int i = 0; i < kWatchers; ++i)
    watchers.push_back(
        std::make_unique<Watcher>(*stubs[static_cast<size_t>(i % kConnections)], outcome));
  const auto wait = [&outcome](const std::function<bool()>& done) {
    std::unique_lock<std::mutex> lock(outcome.mutex);
    return outcome.changed.wait_for(lock, std::chrono::seconds(60), done);
  };
  EXPECT_TRUE(wait([&] { return outcome.open + outcome.refused == kWatchers; }));
  EXPECT_EQ(outcome.open, limit);
  EXPECT_EQ(outcome.other, "");
  EXPECT_TRUE(IsServing(server_->channel()));
  EXPECT_TRUE(IsServing(ChannelTo(socket())));
  const v1::Job job = server_->MustCreate("job", "steps=1");
  for (const auto& watcher : watchers) watcher->Cancel();
  EXPECT_TRUE(wait([&] { return outcome.done == kWatchers; }));
  // Their places are given back.
  EXPECT_TRUE(AwaitMetric(kOpenWatches, 0));
  EXPECT_EQ(server_->WaitTerminal(job.name()).state(), v1::JOB_STATE_SUCCEEDED);
}

// Nobody can count connections before gRPC has accepted them: what bounds them is how long one may
// take to say its first word.
TEST_F(Row29, ConnectionsThatSayNothingAreClosedAndDisturbNobody) {
  constexpr int kSilent = 200;
  RpcServerOptions options;
  options.socket_path = directory_.path() + "/d.sock";
  options.handshake_timeout = std::chrono::milliseconds(500);
  const auto server = RpcServer::Start(options, {});
  ASSERT_TRUE(server.ok()) << server.status();
  (*server)->SetServing(true);
  std::vector<UniqueFd> silent;
  for (int i = 0; i < kSilent; ++i) {
    silent.push_back(ConnectTo(options.socket_path));
    ASSERT_TRUE(silent.back().valid()) << i;
  }
  EXPECT_TRUE(IsServing(ChannelTo(options.socket_path)));
  for (const UniqueFd& socket : silent) EXPECT_TRUE(ReadToEnd(socket));
  EXPECT_TRUE(IsServing(ChannelTo(options.socket_path)));
}

// gRPC's own listener would end with the first accept() that finds no descriptor, for good.
// What comes over TCP does not even get that far: tests/server/rpc/connection_acceptor_test.
TEST(Row29Process, AFloodThatTakesAllDescriptorsIsForgottenOnceItEnds) {
  constexpr int kFlood = 400;
  const TemporaryDirectory directory;
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlimit few = limit;
  few.rlim_cur = 128;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  DaemonProcess daemon(directory.path());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_TRUE(daemon.ready());
  DaemonClient client(directory.path());
  const v1::Job job = client.Create("steps=2 hold_at=2");
  ASSERT_TRUE(client.WatchUntil(
      job.name(), [](const v1::JobEvent& event) { return event.progress().step() == 1; }));
  const std::string socket = TestConfig(directory.path()).socket;
  const auto old_connection = ChannelTo(socket);
  // A sanitizer takes descriptors for its first look at what a call is handled by.
  ASSERT_TRUE(IsServing(old_connection));
  ASSERT_EQ(client.Get(job.name()).state(), v1::JOB_STATE_RUNNING);
  std::vector<UniqueFd> flood;
  for (int i = 0; i < kFlood; ++i) flood.push_back(ConnectTo(socket));
  EXPECT_TRUE(Await([&] { return UseOf(daemon.pid()).descriptors >= 120; }));
  EXPECT_TRUE(IsServing(old_connection));
  EXPECT_EQ(client.Get(job.name()).state(), v1::JOB_STATE_RUNNING);
  flood.clear();
  EXPECT_TRUE(Await([&] { return IsServing(ChannelTo(socket)); }));
  LetGo(job);
  EXPECT_EQ(client.WaitTerminal(job.name()).state(), v1::JOB_STATE_SUCCEEDED);
}

class F049 : public ::testing::Test {
 protected:
  const TemporaryDirectory directory_;
};

// The machine is gone or its packets are dropped: the connection stays, and nothing answers.
TEST_F(F049, APeerThatAnswersNoPingIsDroppedWithinTheKeepaliveBound) {
  RpcServerOptions options;
  EXPECT_LE(options.keepalive + options.keepalive_timeout, std::chrono::minutes(2));
  options.socket_path = directory_.path() + "/d.sock";
  options.keepalive = std::chrono::milliseconds(300);
  options.keepalive_timeout = std::chrono::milliseconds(300);
  const auto server = RpcServer::Start(options, {});
  ASSERT_TRUE(server.ok()) << server.status();
  (*server)->SetServing(true);
  const auto alive = ChannelTo(options.socket_path);
  ASSERT_TRUE(IsServing(alive));
  // As every client of HTTP/2 begins: its preface, and settings of which none is changed.
  const UniqueFd gone = ConnectTo(options.socket_path);
  ASSERT_TRUE(SendAll(gone, absl::StrCat("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                                         std::string("\0\0\0\4\0\0\0\0\0", 9))));
  const auto begin = Clock::now();
  EXPECT_TRUE(ReadToEnd(gone));
  EXPECT_GE(Clock::now() - begin, options.keepalive);
  EXPECT_TRUE(IsServing(alive));
}

TEST_F(F049, FiveHundredClientsThatVanishLeaveNothingAndTheJobGoesOn) {
  constexpr int kWarmUp = 100, kClients = 500, kRounds = 4;
  constexpr int64_t kPool = 16;  // gRPC starts and ends threads as it sees fit
  DaemonProcess daemon(directory_.path());
  ASSERT_TRUE(daemon.ready());
  DaemonClient client(directory_.path());
  const v1::Job job = client.Create("steps=6 save=2 hold_at=4");
  ASSERT_TRUE(client.WatchUntil(
      job.name(), [](const v1::JobEvent& event) { return event.progress().step() == 3; }));
  const std::string socket = TestConfig(directory_.path()).socket;
  v1::WatchJobsRequest request;
  request.set_job(job.name());
  const std::string bytes = RecordWatch(directory_.path(), socket, request);
  // A process that is killed closes its sockets, whatever it was doing: every other one at once,
  // the others after their first message.
  const auto vanish = [&](int clients) {
    for (int i = 0; i < clients; ++i) {
      const UniqueFd gone = ConnectTo(socket);
      ASSERT_TRUE(SendAll(gone, bytes)) << i;
      if (i % 2 == 1) {
        ASSERT_TRUE(ReadToFirstData(gone)) << i;
      }
    }
  };
  const auto descriptors = [&daemon] { return UseOf(daemon.pid()).descriptors; };
  const int64_t at_first = descriptors();
  vanish(kWarmUp);
  EXPECT_TRUE(Await([&] { return descriptors() <= at_first; })) << descriptors() << " " << at_first;
  // What leaks grows every time; what the allocator keeps for each of its threads does not.
  int64_t grown_bytes = 0;
  for (int round = 0; round < kRounds; ++round) {
    const ProcessUse before = UseOf(daemon.pid());
    vanish(kClients);
    ProcessUse after;
    EXPECT_TRUE(Await([&] {
      after = UseOf(daemon.pid());
      return after.descriptors <= before.descriptors && after.threads <= before.threads + kPool;
    })) << after.descriptors
        << " of " << before.descriptors << " descriptors, " << after.threads << " of "
        << before.threads << " threads";
    grown_bytes = after.resident_bytes - before.resident_bytes;
    RecordProperty(absl::StrCat("grown_bytes_", round), absl::StrCat(grown_bytes));
    if (grown_bytes < 4 * kMiB) break;
  }
  if (kMeasuresMemory) {
    EXPECT_LT(grown_bytes, 4 * kMiB) << "again in each of " << kRounds << " rounds";
  }
  LetGo(job);
  const v1::Job done = client.WaitTerminal(job.name());
  EXPECT_EQ(done.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(done.attempt(), 1);
  // All places of streams are free again.
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::JobEvent>>> streams;
  v1::WatchJobsRequest all;
  all.set_include_snapshot(true);
  for (int i = 0; i < TrainingServiceOptions().max_streams; ++i) {
    // The last of them may give its place back after its descriptor.
    ASSERT_TRUE(Await([&] {
      auto context = std::make_unique<grpc::ClientContext>();
      auto stream = client.stub().WatchJobs(context.get(), all);
      v1::JobEvent event;
      if (!stream->Read(&event)) return stream->Finish().ok();
      contexts.push_back(std::move(context));
      streams.push_back(std::move(stream));
      return true;
    })) << i;
  }
  for (const auto& context : contexts) context->TryCancel();
  for (const auto& stream : streams) stream->Finish();
}

}  // namespace
}  // namespace blockswap::server
