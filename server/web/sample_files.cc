// SPDX-License-Identifier: Apache-2.0
#include "server/web/sample_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/base/reason.h"
#include "server/base/unique_fd.h"

namespace blockswap::server {
namespace {

constexpr int64_t kMaxBytes = int64_t{32} << 20;
constexpr absl::string_view kPngMagic("\x89PNG\r\n\x1a\n", 8);

// The names that workers give their pictures.
std::optional<int64_t> StepOf(absl::string_view name) {
  if (name == "sheet.png") return -1;
  int64_t step = 0;
  if (!absl::ConsumePrefix(&name, "step-") || !absl::ConsumeSuffix(&name, ".png") ||
      name.size() > 18 ||
      !std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; }) ||
      !absl::SimpleAtoi(name, &step)) {
    return std::nullopt;
  }
  return step;
}

UniqueFd OpenSamples(const std::string& output_directory) {
  const UniqueFd job(::open(output_directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!job.valid()) return UniqueFd();
  return UniqueFd(::openat(job.get(), "samples", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

absl::Status NoSample(const std::string& name) {
  return WithReason(absl::NotFoundError(absl::StrCat("no such sample: ", name)),
                    "SAMPLE_NOT_FOUND");
}

}  // namespace

std::vector<SampleFile> ListSamples(const std::string& output_directory) {
  std::vector<SampleFile> files;
  UniqueFd directory = OpenSamples(output_directory);
  if (!directory.valid()) return files;
  const int listed = ::dup(directory.get());  // closedir closes its own
  std::unique_ptr<DIR, int (*)(DIR*)> entries(::fdopendir(listed), ::closedir);
  if (entries == nullptr) {
    if (listed >= 0) ::close(listed);
    return files;
  }
  while (const dirent* entry = ::readdir(entries.get())) {
    const std::optional<int64_t> step = StepOf(entry->d_name);
    struct stat facts = {};
    if (!step.has_value() ||
        ::fstatat(directory.get(), entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(facts.st_mode)) {
      continue;
    }
    files.push_back({entry->d_name, *step, facts.st_size});
  }
  const auto order = [](const SampleFile& file) {
    return file.step < 0 ? std::numeric_limits<int64_t>::max() : file.step;
  };
  std::sort(files.begin(), files.end(),
            [&order](const SampleFile& a, const SampleFile& b) { return order(a) < order(b); });
  if (files.size() > kMaxSamples) files.erase(files.begin(), files.end() - kMaxSamples);
  return files;
}

absl::StatusOr<std::string> ReadSample(const std::string& output_directory,
                                       const std::string& name) {
  if (!StepOf(name).has_value()) return NoSample(name);
  const UniqueFd directory = OpenSamples(output_directory);
  if (!directory.valid()) return NoSample(name);
  // O_NONBLOCK: a pipe under that name must not hold the thread.
  const UniqueFd file(
      ::openat(directory.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat facts = {};
  if (!file.valid() || ::fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode) ||
      facts.st_size > kMaxBytes) {
    return NoSample(name);
  }
  std::string bytes(static_cast<size_t>(facts.st_size), '\0');
  size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t got = ::read(file.get(), bytes.data() + filled, bytes.size() - filled);
    if (got <= 0) break;
    filled += static_cast<size_t>(got);
  }
  bytes.resize(filled);
  if (!absl::StartsWith(bytes, kPngMagic)) return NoSample(name);
  return bytes;
}

}  // namespace blockswap::server
