// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/link_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace blockswap::server {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr MeasuredLink kLink = {.h2d = 20e9,
                                .d2h = 20e9,
                                .duplex_h2d = 10e9,
                                .duplex_d2h = 10e9,
                                .pageable = 5e9,
                                .duplex_factor = 1,
                                .latency_seconds = 10e-6,
                                .measured_micros = 1};

class LinkWatchTest : public ::testing::Test {
 protected:
  // Copies of `verdicts` verdicts up and of as many times `down` down, at these rates.
  std::string Copy(double verdicts, double up_rate, double down = 0, double down_rate = 1) {
    const double bytes = verdicts * static_cast<double>(kBytesOfVerdict);
    counters_.h2d_link_bytes += static_cast<int64_t>(bytes);
    counters_.h2d_busy_seconds += bytes / up_rate;
    counters_.d2h_link_bytes += static_cast<int64_t>(bytes * down);
    counters_.d2h_busy_seconds += bytes * down / down_rate;
    return watch_.Note(counters_, link_);
  }
  LinkWatch watch_;
  SwapCounters counters_;
  MeasuredLink link_ = kLink;
};

TEST_F(LinkWatchTest, SlowCopiesAreSaidInOneSentenceWithBothRates) {
  Copy(0, 1);
  EXPECT_THAT(Copy(1.5, 8e9), HasSubstr("to the device reach 8.0 GB/s"));
  EXPECT_THAT(Copy(1.5, 8e9), HasSubstr("measured 20.0"));
  EXPECT_THAT(Copy(1.5, 0.7 * 20e9), IsEmpty());
  EXPECT_THAT(Copy(1.5, 20e9, /*down=*/1, 4e9), HasSubstr("from the device reach 4.0 GB/s"));
}

TEST_F(LinkWatchTest, LoadingBeforeTheFirstStepIsNotCounted) {
  EXPECT_THAT(Copy(10, 1e9), IsEmpty());
  EXPECT_THAT(Copy(1.5, 19e9), IsEmpty());
}

TEST_F(LinkWatchTest, WhatWasCopiedBeforeARestartIsNotJudged) {
  Copy(0, 1);
  Copy(0.9, 1e9);
  watch_.Restart();
  EXPECT_THAT(Copy(10, 1e9), IsEmpty());
  EXPECT_THAT(Copy(1.5, 19e9), IsEmpty());
  EXPECT_THAT(Copy(1.5, 1e9), HasSubstr("1.0 GB/s"));
}

TEST_F(LinkWatchTest, FewBytesMakeNoVerdictAndAreKeptForTheNext) {
  Copy(0, 1);
  EXPECT_THAT(Copy(0.4, 1e9), IsEmpty());
  EXPECT_THAT(Copy(0.4, 1e9), IsEmpty());
  EXPECT_THAT(Copy(0.4, 1e9), HasSubstr("1.0 GB/s"));
}

TEST_F(LinkWatchTest, CopiesBothWaysAreHeldToTheRateOfBothAtOnce) {
  Copy(0, 1);
  EXPECT_THAT(Copy(1.5, 8e9, /*down=*/1, 8e9), IsEmpty());
  EXPECT_THAT(Copy(1.5, 8e9, /*down=*/0.01, 8e9), HasSubstr("to the device"));
}

TEST_F(LinkWatchTest, StagedCopiesAreHeldToTheRateOfPageableMemory) {
  Copy(0, 1);
  watch_.ExpectStaged();
  EXPECT_THAT(Copy(1.5, 4e9), IsEmpty());
  EXPECT_THAT(Copy(1.5, 2e9), HasSubstr("2.0 GB/s"));
}

// Layers of a megabyte: what each copy costs beside its bytes is known and not the bus's fault.
TEST_F(LinkWatchTest, ManySmallCopiesAreGrantedTheirLatency) {
  Copy(0, 1);
  counters_.h2d_transfers += 30000;
  counters_.h2d_busy_seconds += 0.3;
  EXPECT_THAT(Copy(1.5, 19e9), IsEmpty());
}

TEST_F(LinkWatchTest, NothingIsExpectedOfALinkThatWasNotMeasured) {
  link_ = {};
  Copy(0, 1);
  EXPECT_THAT(Copy(1.5, 1e6), IsEmpty());
}

}  // namespace
}  // namespace blockswap::server
