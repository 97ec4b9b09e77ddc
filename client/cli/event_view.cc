// SPDX-License-Identifier: Apache-2.0
#include "client/cli/event_view.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "client/cli/people_text.h"
#include "proto/text/progress_text.h"
#include "proto/text/utf8.h"

namespace blockswap::cli {
namespace {

// "WAITING_FOR_VRAM: needs 3.1 GiB", either half may be missing. A reason that only says the state
// or the type again is left out.
std::string Because(const v1::JobEvent& event) {
  std::string reason = proto::ToPrintable(event.reason());
  if (reason == StateName(event.state()) ||
      absl::StrCat("TYPE_", reason) == v1::JobEvent::Type_Name(event.type())) {
    reason.clear();
  }
  const std::string message = proto::ToPrintable(event.message());
  if (reason.empty() || message.empty()) return absl::StrCat(reason, message);
  return absl::StrCat(reason, ": ", message);
}

std::string TypeWord(v1::JobEvent::Type type) {
  const std::string name(absl::StripPrefix(v1::JobEvent::Type_Name(type), "TYPE_"));
  return absl::StrReplaceAll(absl::AsciiStrToLower(name), {{"_", " "}});
}

}  // namespace

std::string EventLine(const v1::JobEvent& event) {
  std::string line = absl::StrCat(LocalTime(event.time()), "  ", JobId(event.job()), "  ");
  switch (event.type()) {
    case v1::JobEvent::TYPE_PROGRESS:
      return absl::StrCat(line, proto::ProgressLine(ToFigures(event.progress())));
    case v1::JobEvent::TYPE_SNAPSHOT:
    case v1::JobEvent::TYPE_CREATED:
    case v1::JobEvent::TYPE_STATE_CHANGED:
      absl::StrAppend(&line, StateName(event.state()));
      break;
    default:
      absl::StrAppend(&line, TypeWord(event.type()));
  }
  if (event.has_failure()) return absl::StrCat(line, "  ", FailureText(event.failure()));
  const std::string because = Because(event);
  return because.empty() ? line : absl::StrCat(line, "  ", because);
}

void EventView::Close() {
  if (bar_drawn_) out_ << std::endl;
  bar_drawn_ = false;
}

void EventView::EraseBar() {
  if (!bar_drawn_) return;
  out_ << "\r\x1b[K";
  bar_drawn_ = false;
}

void EventView::PrintLine(const std::string& text) {
  EraseBar();
  out_ << text << std::endl;
}

void EventView::Show(const v1::JobEvent& event) {
  switch (event.type()) {
    case v1::JobEvent::TYPE_SNAPSHOT:
    case v1::JobEvent::TYPE_CREATED:
    case v1::JobEvent::TYPE_STATE_CHANGED:
      ShowState(event);
      break;
    case v1::JobEvent::TYPE_PROGRESS:
      ShowProgress(event.progress());
      break;
    case v1::JobEvent::TYPE_PLAN_READY:
    case v1::JobEvent::TYPE_CHECKPOINT_COMMITTED:
    case v1::JobEvent::TYPE_SAMPLE_READY:
    case v1::JobEvent::TYPE_WARNING:
    case v1::JobEvent::TYPE_DELETED:
    case v1::JobEvent::TYPE_UPDATED:
      ShowNotice(event);
      break;
    default:
      break;
  }
}

void EventView::ShowState(const v1::JobEvent& event) {
  std::string line = StateName(event.state());
  if (event.has_failure()) {
    absl::StrAppend(&line, "  ", FailureText(event.failure()));
  } else if (const std::string because = Because(event); !because.empty()) {
    absl::StrAppend(&line, "  ", because);
  }
  // A resumed stream may tell the state again.
  if (line == last_state_line_) return;
  last_state_line_ = line;
  PrintLine(line);
}

void EventView::ShowNotice(const v1::JobEvent& event) {
  const std::string because = Because(event);
  PrintLine(absl::StrCat(TypeWord(event.type()), because.empty() ? "" : ": ", because));
}

void EventView::ShowProgress(const v1::Progress& progress) {
  const proto::ProgressFigures figures = ToFigures(progress);
  if (is_terminal_) {
    // One column less than the terminal has: some wrap when the last one is written.
    out_ << "\r\x1b[K" << proto::ProgressBar(figures, width_ - 1) << std::flush;
    bar_drawn_ = true;
    return;
  }
  const bool last = progress.total_steps() > 0 && progress.step() >= progress.total_steps();
  if (absl::Now() - last_line_ < line_interval_ && !last) return;
  last_line_ = absl::Now();
  PrintLine(proto::ProgressLine(figures));
}

}  // namespace blockswap::cli
