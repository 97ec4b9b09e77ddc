// SPDX-License-Identifier: Apache-2.0
#include "server/base/log_lines.h"

#include <algorithm>

#include "absl/strings/strip.h"

namespace blockswap::server {
namespace {

// A time stamp, a space and the longest level.
constexpr size_t kBeginningBytes = 48;

struct NamedLevel {
  const char* word;
  LogLevel level;
};
constexpr NamedLevel kWords[] = {{"trace", LogLevel::kDebug}, {"debug", LogLevel::kDebug},
                                 {"info", LogLevel::kInfo},   {"warning", LogLevel::kWarning},
                                 {"error", LogLevel::kError}, {"critical", LogLevel::kError}};

LogLevel LevelOf(absl::string_view beginning) {
  const size_t space = beginning.find(' ');
  if (space == absl::string_view::npos) return LogLevel::kOther;
  absl::string_view rest = beginning.substr(space + 1);
  const absl::string_view word = rest.substr(0, rest.find(' '));
  for (const NamedLevel& known : kWords) {
    if (word == known.word) return known.level;
  }
  return LogLevel::kOther;
}

}  // namespace

const char* LogSourceName(LogSource source) {
  return source == LogSource::kServer ? "server" : "worker";
}

const char* LogLevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
    case LogLevel::kOther:
      return "other";
  }
  return "other";
}

LogLineCounts& CountedLogLines() {
  static LogLineCounts counts;
  return counts;
}

void WorkerLineCounter::Count(absl::string_view piece) {
  while (!piece.empty()) {
    const size_t end = piece.find('\n');
    const absl::string_view part = piece.substr(0, end);
    has_line_ = true;
    if (beginning_.size() < kBeginningBytes) {
      const absl::string_view more = part.substr(0, kBeginningBytes - beginning_.size());
      beginning_.append(more.data(), more.size());
    }
    if (end == absl::string_view::npos) return;
    EndLine();
    piece.remove_prefix(end + 1);
  }
}

void WorkerLineCounter::Finish() {
  if (has_line_) EndLine();
}

void WorkerLineCounter::EndLine() {
  CountedLogLines().Add(LogSource::kWorker, LevelOf(beginning_));
  beginning_.clear();
  has_line_ = false;
}

}  // namespace blockswap::server
