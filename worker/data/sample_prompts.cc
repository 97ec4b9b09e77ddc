// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <filesystem>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "offload/base/byte_size.h"
#include "offload/base/nearest_name.h"
#include "offload/base/status_macros.h"
#include "worker/data/cache_headers.h"
#include "worker/data/dataset.h"
#include "worker/io/json_text.h"
#include "worker/io/regular_file.h"

namespace blockswap::worker {
namespace {

constexpr int64_t kMaxPromptFileBytes = base::kMiB;
constexpr int64_t kLongestSide = 8192;
constexpr int64_t kMostSteps = 1000;
constexpr double kLargestShift = 100;

struct Unavailable {
  const char* option;
  const char* meaning;
};
constexpr Unavailable kUnavailable[] = {
    {"g", "embedded guidance"}, {"l", "classifier-free guidance"},
    {"n", "a negative prompt"}, {"i", "a start image"},
    {"ei", "an end image"},     {"cn", "a control video"},
    {"ci", "a control image"},  {"of", "one-frame settings"},
};

// One line's options; the first fault stays as the status.
class PromptLine {
 public:
  PromptLine(const ModelDescription& model, SamplePrompt* prompt)
      : side_step_(model.vae_scale * model.patch), prompt_(prompt) {}

  absl::Status Parse(absl::string_view line) {
    const std::vector<std::string> parts = absl::StrSplit(line, " --");
    std::string text = parts[0];
    size_t next = 1;
    // A dash between words of the prompt is no option.
    for (; next < parts.size() && absl::StartsWith(parts[next], " "); ++next) {
      absl::StrAppend(&text, " --", parts[next]);
    }
    absl::StripAsciiWhitespace(&text);
    prompt_->text = text;
    for (; next < parts.size(); ++next) {
      std::vector<std::string> words = absl::StrSplit(parts[next], absl::MaxSplits(' ', 1));
      words.resize(2);
      absl::StripAsciiWhitespace(&words[1]);
      BLOCKSWAP_RETURN_IF_ERROR(Option(words[0], words[1]));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Option(const std::string& name, const std::string& value) {
    if (name == "w") return Side(name, value, &prompt_->width);
    if (name == "h") return Side(name, value, &prompt_->height);
    if (name == "s") return Whole(name, value, 1, kMostSteps, &prompt_->steps);
    if (name == "d") return Whole(name, value, 0, INT64_MAX, &prompt_->seed);
    if (name == "fs") return Shift(value);
    if (name == "f") {
      int64_t frames = 0;
      return Whole(name, value, 1, 1, &frames);
    }
    for (const Unavailable& option : kUnavailable) {
      if (name == option.option) {
        return absl::InvalidArgumentError(
            absl::StrCat("option --", name, " (", option.meaning, ") is not available yet"));
      }
    }
    return absl::InvalidArgumentError(absl::StrCat("unknown option --", name.substr(0, 32),
                                                   ", known are --w --h --f --d --s --fs"));
  }

  absl::Status Whole(const std::string& name, const std::string& value, int64_t least, int64_t most,
                     int64_t* result) {
    if (absl::SimpleAtoi(value, result) && *result >= least && *result <= most) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat("option --", name,
                                                   " must be a whole number from ", least, " to ",
                                                   most, ", is ", Quoted(value)));
  }

  absl::Status Side(const std::string& name, const std::string& value, int64_t* result) {
    BLOCKSWAP_RETURN_IF_ERROR(Whole(name, value, side_step_, kLongestSide, result));
    if (*result % side_step_ == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("option --", name, " must be a multiple of ", side_step_, ", is ", *result));
  }

  absl::Status Shift(const std::string& value) {
    if (absl::SimpleAtod(value, &prompt_->flow_shift) && prompt_->flow_shift > 0 &&
        prompt_->flow_shift <= kLargestShift) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("option --fs must be a number above 0 and at most ", kLargestShift, ", is ",
                     Quoted(value)));
  }

  const int64_t side_step_;
  SamplePrompt* const prompt_;
};

// The embedding lies beside the prompt file, numbered like the prompts (comments and empty lines do
// not count).
absl::Status FindTextCache(const std::string& prompt_path, size_t index, const Family& family,
                           const ModelDescription& model, SamplePrompt* prompt) {
  std::filesystem::path stem(prompt_path);
  stem.replace_extension();
  const absl::string_view short_name = family.musubi_short_name();
  prompt->text_cache_path =
      absl::StrCat(stem.string(), absl::StrFormat("_%02d_", index), short_name, "_te.safetensors");
  TextHeader header;
  const auto mismatch = ReadTextHeader(prompt->text_cache_path, family, model, &header);
  if (mismatch) {
    return absl::InvalidArgumentError(
        absl::StrCat("its text embedding does not fit or is missing: ", mismatch->text));
  }
  prompt->text_key = header.key;
  prompt->text_tokens = header.tokens;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<SamplePrompt>> ReadSamplePrompts(const std::string& path,
                                                            const Family& family,
                                                            const ModelDescription& model) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxPromptFileBytes));
  std::vector<SamplePrompt> prompts;
  int64_t number = 0;
  for (const absl::string_view raw : absl::StrSplit(text, '\n')) {
    ++number;
    const absl::string_view line = absl::StripAsciiWhitespace(raw);
    if (line.empty() || line[0] == '#') continue;
    SamplePrompt prompt;
    absl::Status status = PromptLine(model, &prompt).Parse(line);
    if (status.ok()) status = FindTextCache(path, prompts.size(), family, model, &prompt);
    if (!status.ok()) {
      return absl::Status(status.code(),
                          absl::StrCat(std::filesystem::path(path).filename().string(), " line ",
                                       number, ": ", status.message()));
    }
    prompts.push_back(std::move(prompt));
  }
  if (prompts.empty()) return absl::InvalidArgumentError(absl::StrCat(path, " has no prompt"));
  return prompts;
}

}  // namespace blockswap::worker
