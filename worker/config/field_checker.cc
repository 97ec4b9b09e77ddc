// SPDX-License-Identifier: Apache-2.0
#include "worker/config/field_checker.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "offload/base/byte_size.h"
#include "offload/base/nearest_name.h"
#include "worker/io/json_text.h"
#include "worker/io/rooted_path.h"

namespace blockswap::worker {
namespace {

constexpr size_t kLongestName = 63;
constexpr size_t kLongestPath = 4095;

bool IsNameCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
}

std::string RangeText(FieldChecker::Bound lower, double least, FieldChecker::Bound upper,
                      double most) {
  return absl::StrCat(lower == FieldChecker::Bound::kOpen ? "above " : "at least ", least, " and ",
                      upper == FieldChecker::Bound::kOpen ? "below " : "at most ", most);
}

}  // namespace

void FieldChecker::Violate(const std::string& field, const std::string& description) {
  result_->violations.push_back({field, description});
}

void FieldChecker::Note(FieldRule rule) {
  if (rules_ != nullptr) rules_->push_back(std::move(rule));
}

void FieldChecker::Whole(const std::string& field, bool given, int64_t value, int64_t least,
                         int64_t most, int64_t* result) {
  Note({.field = field,
        .form = FieldRule::Form::kWhole,
        .least = static_cast<double>(least),
        .most = static_cast<double>(most)});
  if (!given) return;
  if (value < least || value > most) {
    Violate(field, absl::StrCat("must be from ", least, " to ", most, ", is ", value));
    return;
  }
  *result = value;
}

void FieldChecker::Whole(const std::string& field, bool given, int64_t value, int64_t least,
                         int64_t most, int* result) {
  int64_t wide = *result;
  Whole(field, given, value, least, most, &wide);
  *result = static_cast<int>(wide);
}

void FieldChecker::Real(const std::string& field, bool given, double value, Bound lower,
                        double least, Bound upper, double most, double* result) {
  Note({.field = field,
        .form = FieldRule::Form::kReal,
        .least = least,
        .most = most,
        .above_least = lower == Bound::kOpen,
        .below_most = upper == Bound::kOpen});
  if (!given) return;
  // Written so that a NaN, which compares false with everything, is refused.
  const bool above = lower == Bound::kOpen ? value > least : value >= least;
  const bool below = upper == Bound::kOpen ? value < most : value <= most;
  if (!above || !below) {
    Violate(field, absl::StrCat("must be ", RangeText(lower, least, upper, most), ", is ", value));
    return;
  }
  *result = value;
}

void FieldChecker::CheckWord(const std::string& field, const std::string& text,
                             const std::vector<std::string>& choices,
                             const std::vector<std::string>& unavailable) {
  Note({.field = field, .form = FieldRule::Form::kWord, .words = choices});
  if (text.empty() || std::find(choices.begin(), choices.end(), text) != choices.end()) return;
  if (std::find(unavailable.begin(), unavailable.end(), text) != unavailable.end()) {
    Violate(field, absl::StrCat("\"", text, "\" is not available yet, use ",
                                absl::StrJoin(choices, " or ")));
    return;
  }
  const std::string nearest = base::NearestName(absl::AsciiStrToLower(text), choices);
  Violate(field,
          absl::StrCat("must be one of ", absl::StrJoin(choices, ", "), ", is ", Quoted(text),
                       nearest.empty() ? "" : absl::StrCat("; did you mean \"", nearest, "\"?")));
}

void FieldChecker::Bytes(const std::string& field, const std::string& text,
                         std::optional<int64_t>* result) {
  Note({.field = field, .form = FieldRule::Form::kBytes});
  if (text.empty() || text == "auto") return;
  const auto bytes = base::ParseByteSize(text);
  if (!bytes.ok()) {
    Violate(field, absl::StrCat("must be auto or a byte count such as 12GiB, is ", Quoted(text)));
  } else if (*bytes < 1) {
    Violate(field, absl::StrCat("must be auto or at least 1 byte, is ", Quoted(text)));
  } else {
    *result = *bytes;
  }
}

void FieldChecker::Name(const std::string& field, const std::string& text, std::string* result) {
  Note({.field = field, .form = FieldRule::Form::kName});
  const bool good = !text.empty() && text.size() <= kLongestName &&
                    absl::ascii_isalnum(static_cast<unsigned char>(text[0])) &&
                    std::all_of(text.begin(), text.end(), IsNameCharacter);
  if (!good) {
    Violate(field,
            absl::StrCat("must be 1 to ", kLongestName,
                         " letters, digits, '-', '_' and '.', starting with a letter or digit, is ",
                         text.empty() ? "empty" : Quoted(text)));
    return;
  }
  *result = text;
}

void FieldChecker::Path(const std::string& field, const std::string& text, const std::string& root,
                        PathKind kind, std::string* result) {
  if (text.size() > kLongestPath) {
    Violate(field, absl::StrCat("must be at most ", kLongestPath, " bytes, is ", text.size()));
    return;
  }
  const auto resolved = ResolveBelow(root, text);
  if (absl::IsPermissionDenied(resolved.status())) {
    // Not where it leads to: that would tell what lies outside.
    result_->outside_roots.push_back(
        {field,
         absl::StrCat("path ", Quoted(text), " is not allowed: it must stay below its root")});
    return;
  }
  if (!resolved.ok()) {
    Violate(field, absl::StrCat("no such file: ", Quoted(text)));
    return;
  }
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(*resolved, error);
  const bool directory = std::filesystem::is_directory(status);
  if (!std::filesystem::is_regular_file(status) &&
      !(directory && kind == PathKind::kFileOrDirectory)) {
    Violate(field,
            absl::StrCat("must be a regular file",
                         kind == PathKind::kFileOrDirectory ? " or a directory" : "", ", ",
                         Quoted(text), " is ", directory ? "a directory" : "something else"));
    return;
  }
  *result = *resolved;
}

}  // namespace blockswap::worker
