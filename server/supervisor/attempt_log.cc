// SPDX-License-Identifier: Apache-2.0
#include "server/supervisor/attempt_log.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "offload/base/status_macros.h"
#include "proto/text/utf8.h"
#include "server/base/redaction.h"
#include "server/supervisor/spawn_process.h"

namespace blockswap::server {
namespace {

constexpr char kTimes[] = ".times";
constexpr int64_t kTimeStepMicros = 1000000;
constexpr std::chrono::seconds kRedrawInterval{10};

std::string SegmentPath(const std::string& path, int64_t begin) {
  return begin == 0 ? path : absl::StrCat(path, ".", begin);
}

int64_t SizeOf(int fd) {
  struct stat facts {};
  return ::fstat(fd, &facts) == 0 ? facts.st_size : 0;
}

// The file is the server's own; a link or a pipe that lies in its place is not followed.
UniqueFd OpenLog(const std::string& path, int mode) {
  UniqueFd file(::open(path.c_str(), mode | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  struct stat facts {};
  if (file.valid() && (::fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode))) file.Reset();
  return file;
}

// Of all segments there are, by where they begin.
std::map<int64_t, std::string> FindSegments(const std::string& path) {
  const std::filesystem::path first(path);
  const std::string name = first.filename().string();
  std::map<int64_t, std::string> segments;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(first.parent_path(), error)) {
    const std::string other = entry.path().filename().string();
    absl::string_view rest = other;
    if (!absl::ConsumePrefix(&rest, name)) continue;
    int64_t begin = 0;
    const bool is_segment = rest.empty() || (absl::ConsumePrefix(&rest, ".") &&
                                             absl::SimpleAtoi(rest, &begin) && begin > 0);
    if (is_segment) segments[begin] = entry.path().string();
  }
  return segments;
}

struct TimeMark {
  int64_t offset = 0, micros = 0;
};

}  // namespace

std::string AttemptLogPath(const std::string& output_directory, int attempt) {
  return absl::StrCat(output_directory, "/attempt-", attempt, ".log");
}

absl::StatusOr<AttemptLogWriter> AttemptLogWriter::Open(const std::string& output_directory,
                                                        int attempt,
                                                        const AttemptLogLimits& limits) {
  AttemptLogWriter writer(AttemptLogPath(output_directory, attempt), limits);
  for (const auto& [begin, path] : FindSegments(writer.path_)) writer.segments_.push_back(begin);
  if (writer.segments_.empty()) writer.segments_.push_back(0);
  BLOCKSWAP_RETURN_IF_ERROR(writer.OpenSegment(writer.segments_.back()));
  const int64_t size = SizeOf(writer.segment_.get());
  writer.end_ = writer.segments_.back() + size;
  char last = '\n';
  const UniqueFd reading = OpenLog(SegmentPath(writer.path_, writer.segments_.back()), O_RDONLY);
  if (size > 0 && ::pread(reading.get(), &last, 1, size - 1) == 1) writer.is_torn_ = last != '\n';
  return writer;
}

absl::Status AttemptLogWriter::OpenSegment(int64_t begin) {
  const std::string path = SegmentPath(path_, begin);
  UniqueFd segment = OpenLog(path, O_WRONLY | O_CREAT | O_APPEND);
  if (!segment.valid()) return SystemError(absl::StrCat("cannot open the log ", path), errno);
  segment_ = std::move(segment);
  // Without its index a log can still be read, only not by time.
  times_ = OpenLog(path + kTimes, O_WRONLY | O_CREAT | O_APPEND);
  last_time_micros_ = 0;
  return absl::OkStatus();
}

void AttemptLogWriter::Append(const char* bytes, size_t length) {
  while (length > 0) {
    const auto* stop =
        std::find_if(bytes, bytes + length, [](char c) { return c == '\n' || c == '\r'; });
    const auto part = static_cast<size_t>(stop - bytes);
    TakePart(bytes, part);
    bytes += part;
    length -= part;
    if (length == 0) break;
    if (*bytes == '\n') EndLine();
    returned_ = *bytes == '\r';
    ++bytes;
    --length;
  }
  WriteOut();
}

void AttemptLogWriter::TakePart(const char* bytes, size_t length) {
  if (length == 0) return;
  if (returned_) {
    const SteadyTime now = SteadyNow();
    if (!line_.empty() && now - last_redraw_ >= kRedrawInterval) {
      last_redraw_ = now;
      EndLine();
    }
    line_.clear();
    cut_bytes_ = 0;
    returned_ = false;
  }
  const size_t taken = std::min(length, kMaxLogLineBytes - line_.size());
  line_.append(bytes, taken);
  cut_bytes_ += static_cast<int64_t>(length - taken);
}

void AttemptLogWriter::EndLine() {
  absl::StrAppend(&out_, WithoutSecrets(proto::ToValidUtf8(line_)));
  if (cut_bytes_ > 0) absl::StrAppend(&out_, " [", cut_bytes_, " more bytes of this line cut]");
  out_.push_back('\n');
  line_.clear();
  cut_bytes_ = 0;
}

void AttemptLogWriter::Flush() {
  if (!line_.empty()) EndLine();
  WriteOut();
}

void AttemptLogWriter::WriteOut() {
  if (out_.empty()) return;
  const int64_t in_segment = end_ - segments_.back();
  if (in_segment > 0 && in_segment + static_cast<int64_t>(out_.size()) > limits_.segment_bytes) {
    Rotate();
  }
  if (is_torn_) out_.insert(out_.begin(), '\n');
  const TimeMark mark{end_, WallMicros()};
  if (times_.valid() && mark.micros - last_time_micros_ >= kTimeStepMicros) {
    last_time_micros_ = mark.micros;
    if (::write(times_.get(), &mark, sizeof(mark)) != sizeof(mark)) times_.Reset();
  }
  const ssize_t written = ::write(segment_.get(), out_.data(), out_.size());
  if (written > 0) {
    end_ += written;
    is_torn_ = out_[static_cast<size_t>(written) - 1] != '\n';
  }
  out_.clear();
}

void AttemptLogWriter::Rotate() {
  if (!OpenSegment(end_).ok()) return;  // goes on in the old one
  segments_.push_back(end_);
  // Room for a whole new segment below the limit.
  while (segments_.size() > 1 &&
         end_ - segments_.front() > limits_.total_bytes - limits_.segment_bytes) {
    const std::string oldest = SegmentPath(path_, segments_.front());
    ::unlink(oldest.c_str());
    ::unlink((oldest + kTimes).c_str());
    segments_.pop_front();
  }
}

void AttemptLogReader::List() {
  segments_.clear();
  for (const auto& [begin, path] : FindSegments(path_)) {
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    if (!error) segments_.push_back({begin, static_cast<int64_t>(size), path});
  }
}

bool AttemptLogReader::exists() {
  if (segments_.empty()) List();
  return !segments_.empty();
}

int64_t AttemptLogReader::begin() {
  List();
  return segments_.empty() ? 0 : segments_.front().begin;
}

int64_t AttemptLogReader::end() {
  List();
  return segments_.empty() ? 0 : segments_.back().begin + segments_.back().size;
}

bool AttemptLogReader::Use(const Segment& segment) {
  if (file_begin_ == segment.begin && file_.valid()) return true;
  file_ = OpenLog(segment.path, O_RDONLY);
  file_begin_ = file_.valid() ? segment.begin : -1;
  return file_.valid();
}

int64_t AttemptLogReader::SizeOfOpen() const { return file_.valid() ? SizeOf(file_.get()) : 0; }

std::string AttemptLogReader::Read(int64_t* offset, size_t max_bytes, bool is_over) {
  // Mostly the next bytes of the file that is open; else the segments are looked at.
  for (int round = 0; round < 2; ++round) {
    const bool is_inside =
        file_.valid() && *offset >= file_begin_ && *offset < file_begin_ + SizeOfOpen();
    if (!is_inside) {
      List();
      const auto found = std::find_if(segments_.begin(), segments_.end(), [&](const Segment& each) {
        return *offset < each.begin + each.size;
      });
      if (found == segments_.end() || !Use(*found)) return std::string();
      *offset = std::max(*offset, found->begin);
    }
    std::string text(max_bytes, '\0');
    const ssize_t got = ::pread(file_.get(), text.data(), text.size(), *offset - file_begin_);
    text.resize(got > 0 ? static_cast<size_t>(got) : 0);
    if (text.empty()) continue;  // cut shorter meanwhile
    const size_t newline = text.rfind('\n');
    if (newline != std::string::npos) {
      // What follows is a line that is still being written, or that the next call takes.
      if (!is_over || text.size() == max_bytes) text.resize(newline + 1);
    } else if (!is_over && text.size() < max_bytes) {
      text.clear();
    }
    return text;
  }
  return std::string();
}

int64_t AttemptLogReader::OffsetOfLastLines(int64_t lines, LineLevel min_level) {
  const int64_t behind = end();
  if (lines <= 0) return behind;
  // Lines without a level wait for the one they belong to.
  std::vector<int64_t> waiting;
  int64_t found = 0;
  std::string rest;  // the beginning of a line whose end was in the block after it
  for (auto segment = segments_.rbegin(); segment != segments_.rend(); ++segment) {
    if (!Use(*segment)) break;
    int64_t stop = segment->size;
    while (stop > 0) {
      const int64_t start = std::max<int64_t>(0, stop - (int64_t{64} << 10));
      std::string block(static_cast<size_t>(stop - start), '\0');
      if (::pread(file_.get(), block.data(), block.size(), start) <= 0) return begin();
      block += rest;
      int64_t line_end = static_cast<int64_t>(block.size());
      while (line_end > 0) {
        const int64_t from = line_end - (block[static_cast<size_t>(line_end) - 1] == '\n' ? 2 : 1);
        const size_t newline =
            from < 0 ? std::string::npos : block.rfind('\n', static_cast<size_t>(from));
        if (newline == std::string::npos && start > 0) break;  // goes on in the block before
        const int64_t line_begin =
            newline == std::string::npos ? 0 : static_cast<int64_t>(newline) + 1;
        waiting.push_back(segment->begin + start + line_begin);
        const auto level = LevelFilter::LevelOf(absl::string_view(block).substr(
            static_cast<size_t>(line_begin), static_cast<size_t>(line_end - line_begin)));
        if (min_level <= LineLevel::kDebug || level.has_value()) {
          const bool passes = min_level <= LineLevel::kDebug || *level >= min_level;
          for (size_t i = 0; passes && i < waiting.size(); ++i) {
            if (++found == lines) return waiting[i];
          }
          waiting.clear();
        }
        line_end = line_begin;
      }
      rest = block.substr(0, static_cast<size_t>(line_end));
      stop = start;
    }
    rest.clear();
  }
  for (size_t i = 0; min_level <= LineLevel::kInfo && i < waiting.size(); ++i) {
    if (++found == lines) return waiting[i];
  }
  return segments_.empty() ? 0 : segments_.front().begin;
}

int64_t AttemptLogReader::OffsetOfTime(int64_t micros) {
  const int64_t behind = end();
  const int64_t before = segments_.empty() ? 0 : segments_.front().begin;
  bool has_marks = false;
  for (const Segment& segment : segments_) {
    const UniqueFd times = OpenLog(segment.path + kTimes, O_RDONLY);
    std::array<TimeMark, 4096> marks;
    off_t place = 0;
    while (times.valid()) {
      const ssize_t got = ::pread(times.get(), marks.data(), sizeof(marks), place);
      const auto count = got > 0 ? static_cast<size_t>(got) / sizeof(TimeMark) : 0;
      if (count == 0) break;
      place += static_cast<off_t>(count * sizeof(TimeMark));
      has_marks = true;
      for (size_t i = 0; i < count; ++i) {
        // A mark covers the second behind it.
        if (marks[i].micros + kTimeStepMicros > micros) return std::max(before, marks[i].offset);
      }
    }
  }
  // A log without an index may have been written at any time.
  return has_marks ? behind : before;
}

std::optional<LineLevel> LevelFilter::LevelOf(absl::string_view line) {
  constexpr size_t kLookAt = 80;
  struct Word {
    absl::string_view word;
    LineLevel level;
  };
  static constexpr Word kWords[] = {
      {"trace", LineLevel::kDebug},     {"debug", LineLevel::kDebug},  {"info", LineLevel::kInfo},
      {"warning", LineLevel::kWarning}, {"warn", LineLevel::kWarning}, {"error", LineLevel::kError},
      {"critical", LineLevel::kError},  {"fatal", LineLevel::kError},
  };
  const std::string head = absl::AsciiStrToLower(line.substr(0, kLookAt));
  for (const Word& word : kWords) {
    if (absl::StrContains(head, absl::StrCat("[", word.word, "]")) ||
        absl::StartsWith(head, absl::StrCat(word.word, ":"))) {
      return word.level;
    }
  }
  return std::nullopt;
}

bool LevelFilter::Passes(absl::string_view line) {
  if (min_level_ <= LineLevel::kDebug) return true;
  const std::optional<LineLevel> level = LevelOf(line);
  if (level.has_value()) passes_ = *level >= min_level_;
  return passes_;
}

}  // namespace blockswap::server
