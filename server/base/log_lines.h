// SPDX-License-Identifier: Apache-2.0
// Counts the lines this process logs, and those it copies from workers, by level.
#ifndef BLOCKSWAP_SERVER_BASE_LOG_LINES_H_
#define BLOCKSWAP_SERVER_BASE_LOG_LINES_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace blockswap::server {

enum class LogSource { kServer, kWorker };
// kOther: a line that names no level, as a library prints it.
enum class LogLevel { kDebug, kInfo, kWarning, kError, kOther };
inline constexpr LogLevel kLogLevels[] = {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning,
                                          LogLevel::kError, LogLevel::kOther};

const char* LogSourceName(LogSource source);  // "server"
const char* LogLevelName(LogLevel level);     // "warning"

// Thread safety: safe. Counts since the process began.
class LogLineCounts final {
 public:
  void Add(LogSource source, LogLevel level) {
    At(source, level).fetch_add(1, std::memory_order_relaxed);
  }
  int64_t Get(LogSource source, LogLevel level) {
    return At(source, level).load(std::memory_order_relaxed);
  }

 private:
  std::atomic<int64_t>& At(LogSource source, LogLevel level) {
    return counts_[static_cast<size_t>(source)][static_cast<size_t>(level)];
  }
  std::array<std::array<std::atomic<int64_t>, 5>, 2> counts_{};
};

// The log is the process's, and so is its count.
LogLineCounts& CountedLogLines();

// Finds the lines in pieces of a worker's output and counts each by the level it begins with
// ("2026-11-30T19:00:00.000 warning text"). Thread safety: one thread at a time.
class WorkerLineCounter final {
 public:
  void Count(absl::string_view piece);
  // The last line may lack its end.
  void Finish();

 private:
  void EndLine();

  std::string beginning_;  // of the line in progress, as much as a level needs
  bool has_line_ = false;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_BASE_LOG_LINES_H_
