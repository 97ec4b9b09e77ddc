// SPDX-License-Identifier: Apache-2.0
#include "worker/channel/console_reporter.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "offload/base/byte_size.h"
#include "proto/text/progress_text.h"

namespace blockswap::worker {
namespace {

// Weight of the newest step in the mean: about the last twenty count.
constexpr double kNewestWeight = 0.1;

}  // namespace

ConsoleReporterOptions StandardErrorOptions() {
  ConsoleReporterOptions options;
  options.out = &std::cerr;
  const char* term = std::getenv("TERM");
  options.is_terminal =
      isatty(STDERR_FILENO) == 1 && (term == nullptr || std::string(term) != "dumb");
  winsize size{};
  if (options.is_terminal && ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    options.width = size.ws_col;
  }
  return options;
}

ConsoleReporter::~ConsoleReporter() {
  if (bar_drawn_) *options_.out << std::endl;
}

void ConsoleReporter::EraseBar() {
  if (!bar_drawn_) return;
  *options_.out << "\r\x1b[K";
  bar_drawn_ = false;
}

void ConsoleReporter::PrintLine(const std::string& text) {
  EraseBar();
  *options_.out << text << std::endl;
}

void ConsoleReporter::Phase(absl::string_view phase) {
  phase_ = std::string(phase);
  if (!options_.is_terminal || phase_ != "training") PrintLine(absl::StrCat("phase: ", phase));
}

void ConsoleReporter::LoadProgress(int64_t bytes_done, int64_t bytes_total) {
  const absl::Time now = options_.now();
  if (last_load_print_ == absl::InfinitePast()) last_load_print_ = now;  // loading has just begun
  if (now - last_load_print_ < options_.line_interval) return;
  last_load_print_ = now;
  const double share = bytes_total > 0 ? static_cast<double>(bytes_done) /
                                             static_cast<double>(bytes_total)
                                       : 1.0;
  PrintLine(absl::StrFormat("loading: %s of %s (%.0f %%)", base::FormatByteSize(bytes_done),
                            base::FormatByteSize(bytes_total), 100 * share));
}

void ConsoleReporter::Ready(const ReadyReport& ready) {
  total_steps_ = ready.total_steps;
  for (const std::string& skipped : ready.skipped_checkpoints) {
    PrintLine(absl::StrCat("checkpoint skipped: ", skipped));
  }
  if (!ready.resumed_from.empty()) {
    PrintLine(absl::StrCat("resumed from ", ready.resumed_from, " at step ", ready.start_step));
  }
  if (!ready.plan_text.empty()) PrintLine(ready.plan_text);
  PrintLine(absl::StrCat("training on ", ready.device, ", ", ready.total_steps, " steps"));
}

void ConsoleReporter::Step(const StepReport& step) {
  mean_seconds_ = mean_seconds_ == 0
                      ? step.seconds
                      : (1 - kNewestWeight) * mean_seconds_ + kNewestWeight * step.seconds;
  const absl::Duration stall = step.swap.forward_stall + step.swap.backward_stall;
  const double stall_seconds = absl::ToDoubleSeconds(stall - last_stall_);
  last_stall_ = stall;

  const absl::Time now = options_.now();
  const absl::Duration interval =
      options_.is_terminal ? options_.bar_interval : options_.line_interval;
  const bool last = step.step == total_steps_;
  if (now - last_print_ < interval && !last) return;
  last_print_ = now;

  proto::ProgressFigures figures;
  figures.step = step.step;
  figures.total_steps = total_steps_;
  figures.seconds_per_step = mean_seconds_;
  figures.eta_seconds =
      mean_seconds_ * static_cast<double>(std::max<int64_t>(total_steps_ - step.step, 0));
  figures.loss = step.loss;
  figures.device_memory = base::FormatByteSize(step.device_bytes_peak);
  figures.stall_ratio = step.seconds > 0 ? std::clamp(stall_seconds / step.seconds, 0.0, 1.0) : 0;
  figures.phase = phase_;
  if (!options_.is_terminal) {
    PrintLine(proto::ProgressLine(figures));
    return;
  }
  // One column less than the terminal has: some wrap when the last one is written.
  *options_.out << "\r\x1b[K" << proto::ProgressBar(figures, options_.width - 1) << std::flush;
  bar_drawn_ = true;
}

void ConsoleReporter::Memory(const MemoryReport& memory) {
  if (memory.pinning_fell_back) {
    PrintLine(
        "note: the system locked less host memory than planned, the rest is staged through pinned "
        "buffers");
  }
}

void ConsoleReporter::Replanned(const PlanReport& plan) {
  PrintLine(absl::StrCat("new plan after step ", plan.step, " [", plan.reason, "]"));
}

void ConsoleReporter::CheckpointCommitted(int64_t step, const std::string& directory,
                                          const std::string&, int64_t bytes, double seconds) {
  PrintLine(absl::StrFormat("checkpoint of step %d: %s (%s, %.1f s)", step, directory,
                            base::FormatByteSize(bytes), seconds));
}

void ConsoleReporter::SampleReady(int64_t step, const std::string& file) {
  PrintLine(absl::StrCat("sample of step ", step, ": ", file));
}

void ConsoleReporter::Warning(absl::string_view reason, const std::string& message) {
  PrintLine(absl::StrCat("warning: ", message, " [", reason, "]"));
}

void ConsoleReporter::Exiting(const ExitReport& report) {
  if (!report.message.empty()) {
    PrintLine(absl::StrCat(report.code == ExitCode::kOk ? "" : "error: ", report.message));
  }
  if (!report.adapter_file.empty()) PrintLine(absl::StrCat("adapter: ", report.adapter_file));
}

}  // namespace blockswap::worker
