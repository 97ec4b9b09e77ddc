// SPDX-License-Identifier: Apache-2.0
// The log of one attempt: whole lines of valid UTF-8 in segments that are removed from the front
// when there are too many, addressed by offsets that rotation does not change.
#ifndef BLOCKSWAP_SERVER_SUPERVISOR_ATTEMPT_LOG_H_
#define BLOCKSWAP_SERVER_SUPERVISOR_ATTEMPT_LOG_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/base/unique_fd.h"
#include "server/base/wall_clock.h"

namespace blockswap::server {

// A longer line is cut there and says by how much.
inline constexpr size_t kMaxLogLineBytes = 16 << 10;

// `<output_directory>/attempt-<n>.log`: the first segment. A later one has the offset of its first
// byte behind it (attempt-1.log.8388608); `.times` behind either is its index by time.
std::string AttemptLogPath(const std::string& output_directory, int attempt);

struct AttemptLogLimits {
  int64_t total_bytes = int64_t{64} << 20;  // of all segments; the oldest goes
  int64_t segment_bytes = int64_t{8} << 20;
};

// Thread safety: one thread at a time. A full disk costs lines, not the job.
class AttemptLogWriter final {
 public:
  // Goes on behind what is there already. FailedPrecondition: cannot be opened.
  static absl::StatusOr<AttemptLogWriter> Open(const std::string& output_directory, int attempt,
                                               const AttemptLogLimits& limits);

  // A carriage return begins the line anew, as on a terminal: of a progress bar the last form is
  // kept, and one in between every ten seconds.
  void Append(const char* bytes, size_t length);
  // What is no whole line yet becomes one.
  void Flush();
  int64_t end() const { return end_; }

 private:
  AttemptLogWriter(std::string path, const AttemptLogLimits& limits)
      : path_(std::move(path)), limits_(limits) {}
  absl::Status OpenSegment(int64_t begin);
  void TakePart(const char* bytes, size_t length);
  void EndLine();
  void WriteOut();
  void Rotate();

  std::string path_;
  AttemptLogLimits limits_;
  std::deque<int64_t> segments_;  // where each begins
  UniqueFd segment_, times_;      // of the last one
  int64_t end_ = 0;               // offset behind the last byte
  std::string line_, out_;
  int64_t cut_bytes_ = 0;  // of the line, beyond the limit
  bool returned_ = false;  // the last byte was a carriage return
  bool is_torn_ = false;   // the file ends in the middle of a line
  int64_t last_time_micros_ = 0;
  SteadyTime last_redraw_{};
};

enum class LineLevel { kDebug = 1, kInfo = 2, kWarning = 3, kError = 4 };

// Reads while a writer writes. Thread safety: one thread at a time.
class AttemptLogReader final {
 public:
  AttemptLogReader(std::string output_directory, int attempt)
      : path_(AttemptLogPath(output_directory, attempt)) {}

  bool exists();
  // Offsets that can be read: [begin, end).
  int64_t begin();
  int64_t end();
  // From `*offset` on, at most `max_bytes`; empty at the end. Moves `*offset` to where the text
  // begins: lines that were removed are skipped. Ends at the end of a line unless `is_over`.
  std::string Read(int64_t* offset, size_t max_bytes, bool is_over);
  // Where the last `lines` lines of at least `min_level` begin; the end for none.
  int64_t OffsetOfLastLines(int64_t lines, LineLevel min_level);
  // The first line that may have been written at `micros` or later.
  int64_t OffsetOfTime(int64_t micros);

 private:
  struct Segment {
    int64_t begin = 0;
    int64_t size = 0;
    std::string path;
  };
  void List();
  bool Use(const Segment& segment);
  int64_t SizeOfOpen() const;

  const std::string path_;
  std::vector<Segment> segments_;
  UniqueFd file_;  // of the segment that begins at file_begin_
  int64_t file_begin_ = -1;
};

// Lets lines of at least a level through; a line that names no level goes with the one before it.
class LevelFilter final {
 public:
  // `starts_inside`: the first line may belong to one that passed before it. Otherwise lines before
  // the first that names a level count as kInfo.
  LevelFilter(LineLevel min_level, bool starts_inside)
      : min_level_(min_level), passes_(starts_inside || min_level <= LineLevel::kInfo) {}
  bool Passes(absl::string_view line);
  // What a line says of itself: "[warning]" as spdlog writes it, or a first word as WARNING:.
  static std::optional<LineLevel> LevelOf(absl::string_view line);

 private:
  const LineLevel min_level_;
  bool passes_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SUPERVISOR_ATTEMPT_LOG_H_
