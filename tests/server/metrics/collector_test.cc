// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/collector.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "server/base/wall_clock.h"
#include "server/metrics/metric_parts.h"

namespace blockswap::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Collector::Families One(double value) {
  auto family = CollectedFamily::Gauge("test_value", "A value.");
  family.Add({}, value);
  Collector::Families families;
  family.MoveTo(families);
  return families;
}

CollectorOptions Quick() {
  CollectorOptions options;
  options.period = milliseconds(1);
  return options;
}

// A source that hangs until it is let go.
class Gate {
 public:
  void Pass() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  void Open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void AwaitWaiter() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waiting_ > 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int waiting_ = 0;
};

double ValueOf(const Collector::Families& families, const std::string& name) {
  for (const auto& family : families) {
    if (family.name == name) {
      return family.type == prometheus::MetricType::Counter ? family.metric.at(0).counter.value
                                                            : family.metric.at(0).gauge.value;
    }
  }
  return -1;
}

TEST(CollectorTest, ShowsTheLastReading) {
  std::atomic<int> readings{0};
  const Collector collector(
      "test", [&readings] { return One(++readings); }, Quick());
  ASSERT_TRUE(collector.WaitForRounds(3, seconds(10)));
  const Collector::Snapshot latest = collector.Latest();
  ASSERT_EQ(latest.families.size(), 1u);
  EXPECT_GE(latest.families[0].metric[0].gauge.value, 3);
  EXPECT_EQ(latest.errors, 0);
}

TEST(CollectorTest, FailureIsCountedAndNothingOldIsShown) {
  std::atomic<bool> fails{false};
  const Collector collector(
      "test",
      [&fails]() -> absl::StatusOr<Collector::Families> {
        if (fails.load()) return absl::UnavailableError("no answer");
        return One(1);
      },
      Quick());
  ASSERT_TRUE(collector.WaitForRounds(1, seconds(10)));
  EXPECT_EQ(collector.Latest().families.size(), 1u);
  fails = true;
  ASSERT_TRUE(collector.WaitForRounds(collector.Latest().rounds + 2, seconds(10)));
  EXPECT_TRUE(collector.Latest().families.empty());
  EXPECT_GE(collector.Latest().errors, 1);
  fails = false;
  ASSERT_TRUE(collector.WaitForRounds(collector.Latest().rounds + 2, seconds(10)));
  EXPECT_EQ(collector.Latest().families.size(), 1u);
}

// Row 8 of the fault list: a driver that hangs.
TEST(CollectorTest, ReadingThatHangsIsOneErrorAndHoldsNobodyUp) {
  const auto gate = std::make_shared<Gate>();
  std::atomic<int> readings{0};
  CollectorOptions options = Quick();
  options.timeout = milliseconds(20);
  const Collector collector(
      "test",
      [gate, &readings] {
        if (++readings > 1) gate->Pass();
        return One(1);
      },
      options);
  gate->AwaitWaiter();
  // Every look is immediate; after the timeout nothing old is shown.
  const SteadyTime deadline = SteadyNow() + seconds(10);
  while (!collector.Latest().families.empty() && SteadyNow() < deadline) {
    const SteadyTime begin = SteadyNow();
    collector.Latest();
    EXPECT_LT(SteadyNow() - begin, seconds(1));
  }
  const int64_t errors = collector.Latest().errors;
  EXPECT_GE(errors, 1);
  EXPECT_TRUE(collector.Latest().families.empty());
  EXPECT_GE(collector.Latest().seconds, 0.02);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(collector.Latest().errors, errors) << "counted twice";
  gate->Open();
  ASSERT_TRUE(collector.WaitForRounds(4, seconds(10)));
  EXPECT_EQ(collector.Latest().families.size(), 1u);
}

TEST(CollectorTest, ThreadThatDoesNotComeBackIsLeftBehind) {
  // Never opened: it stands for a call that does not return.
  static Gate* const gate = new Gate;
  CollectorOptions options = Quick();
  options.patience = milliseconds(10);
  const SteadyTime begin = SteadyNow();
  {
    const Collector collector(
        "test",
        [] {
          gate->Pass();
          return One(1);
        },
        options);
    gate->AwaitWaiter();
  }
  EXPECT_LT(SteadyNow() - begin, seconds(5));
}

TEST(CollectorSetTest, TellsTimeAndErrorsOfEachCollector) {
  CollectorSet set;
  const Collector& good = set.Add(
      "good", [] { return One(7); }, Quick());
  const Collector& bad = set.Add(
      "bad", []() -> absl::StatusOr<Collector::Families> { return absl::InternalError("broken"); },
      Quick());
  ASSERT_TRUE(good.WaitForRounds(1, seconds(10)) && bad.WaitForRounds(2, seconds(10)));
  const Collector::Families families = set.Collect();
  EXPECT_EQ(ValueOf(families, "test_value"), 7);
  for (const auto& family : families) {
    if (family.name != "blockswap_metrics_collect_errors_total") continue;
    ASSERT_EQ(family.metric.size(), 2u);
    EXPECT_EQ(family.metric[0].label[0].value, "good");
    EXPECT_EQ(family.metric[0].counter.value, 0);
    EXPECT_EQ(family.metric[1].label[0].value, "bad");
    EXPECT_GE(family.metric[1].counter.value, 2);
  }
  EXPECT_GE(ValueOf(families, "blockswap_metrics_collect_seconds"), 0);
}

}  // namespace
}  // namespace blockswap::server
