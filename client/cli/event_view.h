// SPDX-License-Identifier: Apache-2.0
// Shows the events of a job to a person: a bar that is drawn over where there is a terminal, plain
// lines elsewhere.
#ifndef BLOCKSWAP_CLIENT_CLI_EVENT_VIEW_H_
#define BLOCKSWAP_CLIENT_CLI_EVENT_VIEW_H_

#include <ostream>
#include <string>

#include "absl/time/time.h"
#include "blockswap/v1/event.pb.h"

namespace blockswap::cli {

// One event in a line: "digits-1  RUNNING  WAITING_FOR_VRAM: needs 3.1 GiB".
std::string EventLine(const v1::JobEvent& event);

class EventView final {
 public:
  // `out` outlives the view; without a terminal progress is printed every `line_interval`.
  EventView(std::ostream& out, bool is_terminal, int width,
            absl::Duration line_interval = absl::Seconds(5))
      : out_(out), is_terminal_(is_terminal), width_(width), line_interval_(line_interval) {}
  ~EventView() { Close(); }

  // Leaves the cursor at the start of an empty line.
  void Close();
  void Show(const v1::JobEvent& event);
  void PrintLine(const std::string& text);

 private:
  void ShowState(const v1::JobEvent& event);
  void ShowNotice(const v1::JobEvent& event);
  void ShowProgress(const v1::Progress& progress);
  void EraseBar();

  std::ostream& out_;
  const bool is_terminal_;
  const int width_;
  const absl::Duration line_interval_;
  bool bar_drawn_ = false;
  absl::Time last_line_ = absl::InfinitePast();
  std::string last_state_line_;
};

}  // namespace blockswap::cli

#endif  // BLOCKSWAP_CLIENT_CLI_EVENT_VIEW_H_
