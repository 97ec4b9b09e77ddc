// SPDX-License-Identifier: Apache-2.0
#include "proto/text/progress_text.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/text/utf8.h"

namespace blockswap::proto {
namespace {

constexpr int kBarCells = 10;

std::string Speed(double seconds_per_step) {
  if (seconds_per_step >= 1) return absl::StrFormat("%.1f s/step", seconds_per_step);
  return absl::StrFormat("%.1f steps/s", 1 / seconds_per_step);
}

std::string PhaseText(const ProgressFigures& figures, const char* separator) {
  if (figures.phase.empty() || figures.phase == "training") return "";
  return absl::StrCat(separator, ToPrintable(figures.phase));
}

// Short enough for 80 columns together with a bar.
std::string BarFigures(const ProgressFigures& figures) {
  std::string text;
  if (figures.seconds_per_step > 0) {
    absl::StrAppend(&text, "  ", Speed(figures.seconds_per_step), "  ETA ",
                    FormatSeconds(figures.eta_seconds));
  }
  if (figures.step > 0) absl::StrAppendFormat(&text, "  loss %.4g", figures.loss);
  if (!figures.device_memory.empty()) absl::StrAppend(&text, "  ", figures.device_memory);
  if (figures.step > 0) absl::StrAppendFormat(&text, "  stall %.0f%%", 100 * figures.stall_ratio);
  return absl::StrCat(text, PhaseText(figures, "  "));
}

std::string LineFigures(const ProgressFigures& figures) {
  std::string text;
  if (figures.seconds_per_step > 0) {
    absl::StrAppend(&text, ", ", Speed(figures.seconds_per_step), ", ETA ",
                    FormatSeconds(figures.eta_seconds));
  }
  if (figures.step > 0) absl::StrAppendFormat(&text, ", loss %.4g", figures.loss);
  if (!figures.device_memory.empty()) {
    absl::StrAppend(&text, ", device ", figures.device_memory);
  }
  if (figures.step > 0) {
    absl::StrAppendFormat(&text, ", swap stall %.0f%%", 100 * figures.stall_ratio);
  }
  return absl::StrCat(text, PhaseText(figures, ", "));
}

}  // namespace

std::string FormatSeconds(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e12) return "-";
  const int64_t whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 60) return absl::StrCat(whole, "s");
  if (whole < 3600) return absl::StrFormat("%dm %02ds", whole / 60, whole % 60);
  if (whole < 86400) return absl::StrFormat("%dh %02dm", whole / 3600, whole % 3600 / 60);
  return absl::StrFormat("%dd %02dh", whole / 86400, whole % 86400 / 3600);
}

std::string ProgressLine(const ProgressFigures& figures) {
  return absl::StrCat("step ", figures.step, "/", figures.total_steps, LineFigures(figures));
}

std::string ProgressBar(const ProgressFigures& figures, int width) {
  const double share =
      figures.total_steps > 0
          ? std::clamp(static_cast<double>(figures.step) / static_cast<double>(figures.total_steps),
                       0.0, 1.0)
          : 0.0;
  const int filled = static_cast<int>(share * kBarCells);
  const std::string bar = absl::StrFormat(
      "[%s%s] %3.0f%% %d/%d%s", std::string(static_cast<size_t>(filled), '#'),
      std::string(static_cast<size_t>(kBarCells - filled), '-'), std::floor(100 * share),
      figures.step, figures.total_steps, BarFigures(figures));
  return bar.substr(0, static_cast<size_t>(std::max(width, 0)));
}

}  // namespace blockswap::proto
