// SPDX-License-Identifier: Apache-2.0
#include "worker/channel/outbox.h"

#include <cstdio>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace blockswap::worker {
namespace {

v1::WorkerMessage Step(int64_t step) {
  v1::WorkerMessage message;
  message.mutable_steps()->add_steps()->set_step(step);
  return message;
}

v1::WorkerMessage Phase(const std::string& phase) {
  v1::WorkerMessage message;
  message.mutable_phase()->set_phase(phase);
  return message;
}

v1::WorkerMessage Warning() {
  v1::WorkerMessage message;
  message.mutable_warning()->set_reason("R");
  return message;
}

v1::WorkerMessage Memory(int64_t rss) {
  v1::WorkerMessage message;
  message.mutable_memory()->set_host_rss_bytes(rss);
  return message;
}

TEST(OutboxTest, NumbersMessagesInTheOrderTheyAreSent) {
  Outbox outbox;
  EXPECT_EQ(outbox.TakeNext(), nullptr);
  outbox.Push(Phase("loading"));
  outbox.Push(Step(1));
  EXPECT_EQ(outbox.TakeNext()->sequence(), 1);
  const v1::WorkerMessage* second = outbox.TakeNext();
  EXPECT_EQ(second->sequence(), 2);
  EXPECT_TRUE(second->has_steps());
  EXPECT_EQ(outbox.TakeNext(), nullptr);
  EXPECT_FALSE(outbox.empty());
  outbox.Acknowledge(2);
  EXPECT_TRUE(outbox.empty());
  EXPECT_EQ(outbox.last_sequence(), 2);
}

TEST(OutboxTest, RepeatsUnacknowledgedMessagesUnchanged) {
  Outbox outbox;
  outbox.Push(Step(1));
  outbox.TakeNext();
  outbox.Push(Step(2));
  outbox.TakeNext();
  outbox.Acknowledge(1);
  outbox.Push(Step(3));
  outbox.Rewind();
  const v1::WorkerMessage* again = outbox.TakeNext();
  EXPECT_EQ(again->sequence(), 2);
  ASSERT_EQ(again->steps().steps_size(), 1);
  EXPECT_EQ(again->steps().steps(0).step(), 2);
  EXPECT_EQ(outbox.TakeNext()->sequence(), 3);
}

TEST(OutboxTest, MergesStepsOnlyBeforeTheyHaveANumber) {
  Outbox outbox;
  outbox.Push(Step(1));
  outbox.Push(Step(2));
  outbox.Push(Phase("sampling"));
  outbox.Push(Phase("training"));
  outbox.Push(Step(3));
  EXPECT_EQ(outbox.TakeNext()->steps().steps_size(), 2);
  EXPECT_EQ(outbox.TakeNext()->phase().phase(), "training");
  EXPECT_EQ(outbox.TakeNext()->steps().steps_size(), 1);
  EXPECT_EQ(outbox.TakeNext(), nullptr);
}

TEST(OutboxTest, StopsAtTheWindow) {
  Outbox outbox;
  for (int i = 0; i < Outbox::kWindow + 10; ++i) {
    outbox.Push(Step(i));
    outbox.Push(Warning());
  }
  int sent = 0;
  while (outbox.TakeNext() != nullptr) ++sent;
  EXPECT_EQ(sent, Outbox::kWindow);
  outbox.Acknowledge(10);
  while (outbox.TakeNext() != nullptr) ++sent;
  EXPECT_EQ(sent, Outbox::kWindow + 10);
}

TEST(OutboxTest, StaysBoundedWhileTheServerIsAway) {
  Outbox outbox;
  const int total = 300000;
  for (int i = 1; i <= total; ++i) {
    outbox.Push(Step(i));
    outbox.Push(Memory(i));
    if (i % 2 == 0) outbox.Push(Warning());
  }
  EXPECT_LE(outbox.waiting_steps(), Outbox::kMaxWaitingSteps);
  int messages = 0;
  int warnings = 0;
  int64_t last_step = 0;
  int64_t rss = 0;
  while (const v1::WorkerMessage* message = outbox.TakeNext()) {
    ++messages;
    warnings += message->has_warning();
    if (message->has_memory()) rss = message->memory().host_rss_bytes();
    for (const v1::Step& step : message->steps().steps()) {
      EXPECT_GT(step.step(), last_step);
      last_step = step.step();
    }
    EXPECT_LE(message->steps().steps_size(), Outbox::kStepsPerBatch);
    outbox.Acknowledge(message->sequence());
  }
  EXPECT_EQ(last_step, total) << "the newest step must survive the thinning";
  EXPECT_EQ(rss, total);
  EXPECT_EQ(warnings, Outbox::kMaxWaitingWarnings);
  EXPECT_LT(messages, 4000);
  EXPECT_TRUE(outbox.empty());
}

// A server that stores a random prefix, acknowledges a random part of it and breaks the stream sees
// every step once.
TEST(OutboxTest, DeliversEachStepOnceOverRandomBreaks) {
  const uint32_t seed = std::random_device()();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    Outbox outbox;
    std::vector<int64_t> stored;
    int64_t last_seen = 0;
    int64_t next_step = 1;
    const int64_t total = 200;
    while (next_step <= total || !outbox.empty()) {
      const int pushes = static_cast<int>(random() % 8);
      for (int i = 0; i < pushes && next_step <= total; ++i) outbox.Push(Step(next_step++));
      const int sends = static_cast<int>(random() % 5);
      for (int i = 0; i < sends; ++i) {
        const v1::WorkerMessage* message = outbox.TakeNext();
        if (message == nullptr) break;
        if (random() % 4 == 0) continue;  // lost with the stream
        if (message->sequence() != last_seen + 1) break;
        last_seen = message->sequence();
        for (const v1::Step& step : message->steps().steps()) stored.push_back(step.step());
        if (random() % 2 == 0) outbox.Acknowledge(last_seen);
      }
      outbox.Acknowledge(last_seen);
      outbox.Rewind();
    }
    ASSERT_EQ(static_cast<int64_t>(stored.size()), total);
    for (int64_t i = 0; i < total; ++i) ASSERT_EQ(stored[static_cast<size_t>(i)], i + 1);
  }
}

}  // namespace
}  // namespace blockswap::worker
