// SPDX-License-Identifier: Apache-2.0
#include "server/auth/call_limits.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "server/base/reason.h"

namespace blockswap::server {
namespace {

Identity Caller(std::string tenant, std::string source = "token") {
  Identity caller;
  caller.name = std::string("x");
  caller.tenant = std::move(tenant);
  caller.source = std::move(source);
  caller.role = Role::kSubmitter;
  return caller;
}

class CallLimitsTest : public ::testing::Test {
 protected:
  std::chrono::steady_clock::time_point now_{};
  CallLimits limits_{CallLimitOptions{10, 20, 2}, [this] { return now_; }};
  int Take(const Identity& caller, int tries) {
    int taken = 0;
    for (int i = 0; i < tries; ++i) taken += limits_.TakeCall(caller).ok();
    return taken;
  }
};

TEST_F(CallLimitsTest, BurstThenTheRate) {
  EXPECT_EQ(Take(Caller("a"), 100), 20);
  now_ += std::chrono::seconds(1);
  EXPECT_EQ(Take(Caller("a"), 100), 10);
  now_ += std::chrono::hours(1);
  EXPECT_EQ(Take(Caller("a"), 100), 20);
  EXPECT_EQ(ReasonOf(limits_.TakeCall(Caller("a"))), "QUOTA_EXCEEDED");
}

TEST_F(CallLimitsTest, OneTenantTakesNothingFromAnother) {
  EXPECT_EQ(Take(Caller("a"), 100), 20);
  EXPECT_EQ(Take(Caller("b"), 5), 5);
}

TEST_F(CallLimitsTest, StreamsAreCountedUntilTheyEnd) {
  EXPECT_TRUE(limits_.BeginStream(Caller("a")).ok());
  EXPECT_TRUE(limits_.BeginStream(Caller("a")).ok());
  EXPECT_EQ(ReasonOf(limits_.BeginStream(Caller("a"))), "TOO_MANY_STREAMS");
  EXPECT_TRUE(limits_.BeginStream(Caller("b")).ok());
  limits_.EndStream(Caller("a"));
  EXPECT_TRUE(limits_.BeginStream(Caller("a")).ok());
}

TEST_F(CallLimitsTest, TheUnixSocketIsNotCounted) {
  EXPECT_EQ(Take(Caller("default", "unix"), 1000), 1000);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(limits_.BeginStream(Caller("default", "unix")).ok());
}

TEST(CallLimitsOffTest, ZeroMeansNoLimit) {
  CallLimits limits(CallLimitOptions{0, 0, 0});
  for (int i = 0; i < 1000; ++i) {
    EXPECT_TRUE(limits.TakeCall(Caller("a")).ok());
    EXPECT_TRUE(limits.BeginStream(Caller("a")).ok());
  }
}

}  // namespace
}  // namespace blockswap::server
