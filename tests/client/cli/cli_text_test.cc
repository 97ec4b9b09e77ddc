// SPDX-License-Identifier: Apache-2.0
// The parts of the command line that need no server.
#include <cstdlib>
#include <sstream>

#include "client/cli/arguments.h"
#include "client/cli/event_view.h"
#include "client/cli/exit_code.h"
#include "client/cli/job_text.h"
#include "client/cli/people_text.h"
#include "client/cli/table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace blockswap::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(TableTest, AlignsCharactersAndCannotBeSteered) {
  Table table({"A", "B"});
  table.AddRow({"gr\xc3\xbc\xc3\x9f", "x\x1b[31m\ny"});
  table.AddRow({"a"});
  EXPECT_EQ(table.Render(0), "A     B\ngr\xc3\xbc\xc3\x9f  x[31m y\na\n");
  EXPECT_EQ(table.Render(3), "A\ngr\xc3\xbc\na\n");
}

TEST(ExitCodeTest, SaysHowAJobEnded) {
  for (int i = v1::JobState_MIN; i <= v1::JobState_MAX; ++i) {
    const auto state = static_cast<v1::JobState>(i);
    const ExitCode expected = state == v1::JOB_STATE_SUCCEEDED   ? kOk
                              : state == v1::JOB_STATE_FAILED    ? kJobFailed
                              : state == v1::JOB_STATE_CANCELLED ? kJobCancelled
                                                                 : kStillRunning;
    EXPECT_EQ(ExitCodeOf(state), expected) << v1::JobState_Name(state);
    EXPECT_EQ(IsTerminal(state), expected != kStillRunning);
  }
}

TEST(ArgumentsTest, TranslatesTheMusubiFlagsBeforeSet) {
  std::ostringstream out, err;
  int code = 0;
  const auto arguments = ParseArguments(
      {"submit", "a.yaml", "--blocks_to_swap", "4", "--use_pinned_memory_for_block_swap",
       "--block_swap_h2d_only", "--block_swap_ring_size", "2", "--vram_budget", "12GiB", "--set",
       "memory.ring_size=3", "--set", "name=x", "--id", "my-job", "-f"},
      out, err, &code);
  ASSERT_TRUE(arguments.has_value()) << err.str();
  EXPECT_THAT(arguments->source.overrides,
              ElementsAre("memory.vram_budget=12GiB", "memory.blocks_to_swap=4",
                          "memory.ring_size=2", "memory.mode=h2d_only", "memory.pinned_memory=auto",
                          "memory.ring_size=3", "name=x"));
  EXPECT_EQ(arguments->id, "my-job");
  EXPECT_TRUE(arguments->follow);
}

TEST(ArgumentsTest, UsageErrorsAreTwoAndHelpIsZero) {
  const auto code_of = [](const std::vector<std::string>& words, std::string* message) {
    std::ostringstream out, err;
    int code = -1;
    EXPECT_FALSE(ParseArguments(words, out, err, &code).has_value());
    *message = out.str() + err.str();
    return code;
  };
  std::string text;
  EXPECT_EQ(code_of({"--help"}, &text), kOk);
  EXPECT_THAT(text, HasSubstr("Exit codes: 0 ok"));
  EXPECT_EQ(code_of({}, &text), kUsage);
  EXPECT_EQ(code_of({"submitt", "x"}, &text), kUsage);
  EXPECT_THAT(text, HasSubstr("did you mean 'submit'?"));
  EXPECT_EQ(code_of({"submit"}, &text), kUsage);
  EXPECT_EQ(code_of({"submit", "a", "--follow", "--wait"}, &text), kUsage);
  EXPECT_EQ(code_of({"list", "-o", "xml"}, &text), kUsage);
  EXPECT_EQ(code_of({"wait", "a", "--timeout", "soon"}, &text), kUsage);
  EXPECT_EQ(code_of({"wait", "a", "--for", "ever"}, &text), kUsage);
  EXPECT_EQ(code_of({"get", "a", "--no-such-flag"}, &text), kUsage);
}

TEST(ArgumentsTest, TakesDurationsWithAndWithoutUnits) {
  for (const auto& [text, expected] : std::vector<std::pair<std::string, absl::Duration>>{
           {"90", absl::Seconds(90)}, {"5m", absl::Minutes(5)}, {"0.5", absl::Milliseconds(500)}}) {
    std::ostringstream out, err;
    int code = 0;
    const auto arguments = ParseArguments({"wait", "a", "b", "--timeout", text}, out, err, &code);
    ASSERT_TRUE(arguments.has_value()) << err.str();
    EXPECT_EQ(arguments->timeout, expected);
    EXPECT_THAT(arguments->jobs, ElementsAre("a", "b"));
  }
}

TEST(EventViewTest, ShowsEachStateOnceAndWhyAJobWaits) {
  std::ostringstream out;
  {
    EventView view(out, /*is_terminal=*/false, 80, absl::ZeroDuration());
    v1::JobEvent event;
    event.set_type(v1::JobEvent::TYPE_SNAPSHOT);
    event.set_state(v1::JOB_STATE_QUEUED);
    event.set_reason("WAITING_FOR_VRAM");
    event.set_message("needs 3.1 GiB, position 2");
    view.Show(event);
    view.Show(event);
    event.Clear();
    event.set_type(v1::JobEvent::TYPE_PROGRESS);
    event.mutable_progress()->set_step(3);
    event.mutable_progress()->set_total_steps(10);
    view.Show(event);
    event.Clear();
    event.set_type(v1::JobEvent::TYPE_STATE_CHANGED);
    event.set_state(v1::JOB_STATE_FAILED);
    event.mutable_failure()->set_category(v1::FAILURE_CATEGORY_NUMERICS);
    event.mutable_failure()->set_message("loss is nan\x1b[0m");
    event.mutable_failure()->set_step(4);
    view.Show(event);
  }
  EXPECT_EQ(out.str(),
            "QUEUED  WAITING_FOR_VRAM: needs 3.1 GiB, position 2\n"
            "step 3/10, loss 0, swap stall 0%\n"
            "FAILED  NUMERICS: loss is nan[0m (step 4)\n");
}

TEST(EventViewTest, LeavesOutAReasonThatSaysNothingNew) {
  v1::JobEvent event;
  event.set_type(v1::JobEvent::TYPE_SAMPLE_READY);
  event.set_reason("SAMPLE_READY");
  event.set_message("step 4: /out/a.png");
  std::ostringstream out;
  EventView view(out, /*is_terminal=*/false, 80);
  view.Show(event);
  event.set_type(v1::JobEvent::TYPE_STATE_CHANGED);
  event.set_state(v1::JOB_STATE_STARTING);
  event.set_reason("STARTING");
  event.set_message("attempt 1 starts on host");
  view.Show(event);
  EXPECT_EQ(out.str(), "sample ready: step 4: /out/a.png\nSTARTING  attempt 1 starts on host\n");
}

TEST(EventViewTest, SaysHowMuchIsLoaded) {
  std::ostringstream out;
  EventView view(out, /*is_terminal=*/false, 80, absl::ZeroDuration());
  v1::JobEvent event;
  event.set_type(v1::JobEvent::TYPE_PROGRESS);
  event.mutable_progress()->set_total_steps(10);
  event.mutable_progress()->set_phase("loading");
  event.mutable_progress()->set_phase_bytes_done(int64_t{6} << 30);
  event.mutable_progress()->set_phase_bytes_total(int64_t{12} << 30);
  view.Show(event);
  EXPECT_EQ(out.str(), "step 0/10, loading 6.0 GiB of 12.0 GiB\n");
}

TEST(EventViewTest, TheBarGivesWay) {
  std::ostringstream out;
  {
    EventView view(out, /*is_terminal=*/true, 40);
    v1::JobEvent event;
    event.set_type(v1::JobEvent::TYPE_PROGRESS);
    event.mutable_progress()->set_total_steps(10);
    view.Show(event);
    view.PrintLine("hello");
    view.Show(event);
  }
  EXPECT_THAT(out.str(), HasSubstr("\r\x1b[Khello\n"));
  EXPECT_EQ(out.str().back(), '\n');
}

TEST(JobTextTest, DescribesWhatIsKnown) {
  v1::Job job;
  job.set_name("jobs/digits-1");
  job.set_state(v1::JOB_STATE_RUNNING);
  job.mutable_spec()->set_name("digits");
  job.mutable_spec()->mutable_training()->set_max_steps(300);
  (*job.mutable_spec()->mutable_labels())["team"] = "a\"b";
  job.mutable_create_time()->set_seconds(1000);
  job.mutable_plan()->set_text("6 blocks, 4 streamed\n");
  job.set_output_directory("/out/digits-1");
  const std::string text = DescribeJob(job, absl::FromUnixSeconds(1090));
  EXPECT_THAT(text, HasSubstr("State:        RUNNING\n"));
  EXPECT_THAT(text, HasSubstr("(1m 30s ago)"));
  EXPECT_THAT(text, HasSubstr("Plan:\n  6 blocks, 4 streamed\n"));
  EXPECT_THAT(text, HasSubstr("Spec:\n  name: \"digits\"\n  training:\n    max_steps: 300\n  "
                              "labels: {\"team\": \"a\\\"b\"}\n"));
  EXPECT_THAT(text, Not(HasSubstr("Failure")));
  EXPECT_EQ(AdapterFile(job), "/out/digits-1/digits.safetensors");
  job.mutable_spec()->mutable_output()->set_name("style");
  EXPECT_EQ(AdapterFile(job), "/out/digits-1/style.safetensors");
}

TEST(PeopleTextTest, WritesTimesForPeople) {
  google::protobuf::Timestamp time;
  EXPECT_EQ(Ago(time, absl::Now()), "-");
  EXPECT_EQ(LocalTime(time), "-");
  time.set_seconds(1000);
  EXPECT_EQ(Ago(time, absl::FromUnixSeconds(1000 + 90000)), "1d 01h ago");
  EXPECT_EQ(Ago(time, absl::FromUnixSeconds(999)), "0s ago") << "clocks may differ a little";
}

// F130: an hour comes twice when summer time ends; only the zone tells which.
TEST(PeopleTextTest, TimesSayTheirZone) {
  const char* zone = std::getenv("TZ");
  const std::string before = zone == nullptr ? "" : zone;
  ::setenv("TZ", "Europe/Berlin", /*overwrite=*/1);
  google::protobuf::Timestamp time;
  time.set_seconds(1792888200);  // 2026-10-25T00:30:00Z
  EXPECT_EQ(LocalTime(time), "2026-10-25 02:30:00 CEST");
  time.set_seconds(time.seconds() + 3600);
  EXPECT_EQ(LocalTime(time), "2026-10-25 02:30:00 CET");
  zone == nullptr ? ::unsetenv("TZ") : ::setenv("TZ", before.c_str(), /*overwrite=*/1);
}

}  // namespace
}  // namespace blockswap::cli
