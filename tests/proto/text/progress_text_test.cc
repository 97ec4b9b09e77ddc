// SPDX-License-Identifier: Apache-2.0
#include "proto/text/progress_text.h"

#include <cmath>

#include "gtest/gtest.h"

namespace blockswap::proto {
namespace {

ProgressFigures Halfway() {
  ProgressFigures figures;
  figures.step = 150;
  figures.total_steps = 300;
  figures.seconds_per_step = 0.25;
  figures.eta_seconds = 37.5;
  figures.loss = 0.12345;
  figures.device_memory = "3.9 MiB";
  figures.stall_ratio = 0.021;
  figures.phase = "training";
  return figures;
}

TEST(ProgressTextTest, SaysEverythingInOneLine) {
  EXPECT_EQ(ProgressLine(Halfway()),
            "step 150/300, 4.0 steps/s, ETA 38s, loss 0.1235, device 3.9 MiB, swap stall 2%");
}

TEST(ProgressTextTest, LeavesOutWhatIsNotKnownYet) {
  ProgressFigures figures;
  figures.total_steps = 300;
  figures.phase = "loading\x1b[2J";
  EXPECT_EQ(ProgressLine(figures), "step 0/300, loading[2J");
}

TEST(ProgressTextTest, DrawsABarNoWiderThanTheTerminal) {
  EXPECT_EQ(ProgressBar(Halfway(), 42), "[#####-----]  50% 150/300  4.0 steps/s  ET");
  EXPECT_EQ(ProgressBar(Halfway(), 0), "");
  EXPECT_EQ(ProgressBar(Halfway(), 80),
            "[#####-----]  50% 150/300  4.0 steps/s  ETA 38s  loss 0.1235  3.9 MiB  stall 2%");
  ProgressFigures none;
  EXPECT_EQ(ProgressBar(none, 80), "[----------]   0% 0/0");
  ProgressFigures beyond = Halfway();
  beyond.step = 900;
  EXPECT_EQ(ProgressBar(beyond, 17), "[##########] 100%");
}

TEST(ProgressTextTest, WritesDurationsForPeople) {
  EXPECT_EQ(FormatSeconds(0), "0s");
  EXPECT_EQ(FormatSeconds(59.4), "59s");
  EXPECT_EQ(FormatSeconds(59.6), "1m 00s");
  EXPECT_EQ(FormatSeconds(3660), "1h 01m");
  EXPECT_EQ(FormatSeconds(90000), "1d 01h");
  EXPECT_EQ(FormatSeconds(-1), "-");
  EXPECT_EQ(FormatSeconds(NAN), "-");
  EXPECT_EQ(FormatSeconds(INFINITY), "-");
}

}  // namespace
}  // namespace blockswap::proto
