// SPDX-License-Identifier: Apache-2.0
#include "worker/channel/console_reporter.h"

#include <algorithm>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace blockswap::worker {
namespace {

using testing::HasSubstr;
using testing::Not;

class ConsoleReporterTest : public testing::Test {
 protected:
  ConsoleReporterOptions Options(bool is_terminal) {
    ConsoleReporterOptions options;
    options.out = &out_;
    options.is_terminal = is_terminal;
    options.width = 60;
    options.now = [this] { return now_; };
    return options;
  }

  static StepReport Step(int64_t step) {
    StepReport report;
    report.step = step;
    report.loss = 0.5;
    report.seconds = 1;
    report.swap.forward_stall = absl::Seconds(0.25) * static_cast<double>(step);
    report.device_bytes_peak = 4 << 20;
    return report;
  }

  static ReadyReport Ready() {
    ReadyReport ready;
    ready.total_steps = 10;
    ready.device = "host";
    return ready;
  }

  std::ostringstream out_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
};

TEST_F(ConsoleReporterTest, PrintsALineNowAndThenWithoutATerminal) {
  {
    ConsoleReporter reporter(Options(/*is_terminal=*/false));
    reporter.Ready(Ready());
    reporter.Phase("training");
    for (int64_t step = 1; step <= 10; ++step) {
      reporter.Step(Step(step));
      now_ += absl::Seconds(1);
    }
  }
  const std::string text = out_.str();
  EXPECT_THAT(text, HasSubstr("step 1/10, "));
  EXPECT_THAT(text,
              HasSubstr("step 6/10, 1.0 s/step, ETA 4s, loss 0.5, device 4.0 MiB, swap stall 25%"));
  EXPECT_THAT(text, HasSubstr("step 10/10")) << "the last step is always told";
  EXPECT_THAT(text, Not(HasSubstr("step 2/10")));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\x1b'), 0);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\r'), 0);
}

TEST_F(ConsoleReporterTest, DrawsABarThatFitsAndGivesWayToMessages) {
  {
    ConsoleReporter reporter(Options(/*is_terminal=*/true));
    reporter.Ready(Ready());
    reporter.Phase("training");
    reporter.Step(Step(1));
    reporter.Warning("R", "something");
    reporter.Step(Step(10));
  }
  const std::string text = out_.str();
  EXPECT_THAT(text, HasSubstr("\r\x1b[K[#---------]  10% 1/10"));
  EXPECT_THAT(text, HasSubstr("\r\x1b[Kwarning: something [R]\n"));
  EXPECT_EQ(text.back(), '\n') << "the shell's prompt must not stand behind the bar";
  std::stringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    const size_t bar = line.find('[', line.rfind('K') == std::string::npos ? 0 : line.rfind('K'));
    if (bar == std::string::npos || line.find('#') == std::string::npos) continue;
    EXPECT_LT(line.size() - bar, 60u);
  }
}

TEST_F(ConsoleReporterTest, TellsTheEndAndWhy) {
  ConsoleReporter reporter(Options(/*is_terminal=*/false));
  ExitReport report;
  report.code = ExitCode::kNumerics;
  report.message = "loss is nan at step 3";
  reporter.Exiting(report);
  report = ExitReport();
  report.adapter_file = "/out/a.safetensors";
  reporter.Exiting(report);
  EXPECT_EQ(out_.str(), "error: loss is nan at step 3\nadapter: /out/a.safetensors\n");
}

TEST_F(ConsoleReporterTest, PassesOnWhatASignalHandlerAsks) {
  ConsoleReporter reporter(Options(/*is_terminal=*/false));
  EXPECT_EQ(reporter.stop_requested(), StopRequest::kNone);
  reporter.RequestStop(StopRequest::kCancel);
  EXPECT_EQ(reporter.stop_requested(), StopRequest::kCancel);
}

}  // namespace
}  // namespace blockswap::worker
