// SPDX-License-Identifier: Apache-2.0
#include "offload/base/byte_size.h"

#include <cctype>
#include <cmath>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace blockswap::base {
namespace {

struct Unit {
  absl::string_view name;  // lower case
  int64_t bytes;
};

constexpr Unit kUnits[] = {
    {"", 1},
    {"b", 1},
    {"kib", kKiB},
    {"mib", kMiB},
    {"gib", kGiB},
    {"tib", kGiB * 1024},
    {"kb", 1000},
    {"mb", 1000 * 1000},
    {"gb", int64_t{1000} * 1000 * 1000},
    {"tb", int64_t{1000} * 1000 * 1000 * 1000},
};

absl::Status Malformed(absl::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat(
      "not a byte size: '", text, "'; write a number and a unit, such as 12GiB, 512MiB or 4096"));
}

// Whole numbers stay exact over the whole range; a double could not hold them.
absl::StatusOr<int64_t> Scale(absl::string_view number, int64_t unit, absl::string_view text) {
  const absl::Status too_large =
      absl::InvalidArgumentError(absl::StrCat("byte size too large: '", text, "'"));
  if (number.find('.') == absl::string_view::npos) {
    uint64_t whole = 0;
    if (!absl::SimpleAtoi(number, &whole)) return too_large;
    constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
    if (whole > kMax / static_cast<uint64_t>(unit)) return too_large;
    return static_cast<int64_t>(whole) * unit;
  }
  double value = 0;
  if (!absl::SimpleAtod(number, &value)) return Malformed(text);
  const double bytes = std::floor(value * static_cast<double>(unit));
  if (!(bytes < 9.2e18)) return too_large;
  return static_cast<int64_t>(bytes);
}

}  // namespace

absl::StatusOr<int64_t> ParseByteSize(absl::string_view text) {
  const absl::string_view trimmed = absl::StripAsciiWhitespace(text);
  size_t end = 0;
  int digits = 0;
  int points = 0;
  while (end < trimmed.size() &&
         (absl::ascii_isdigit(static_cast<unsigned char>(trimmed[end])) || trimmed[end] == '.')) {
    (trimmed[end] == '.' ? points : digits)++;
    ++end;
  }
  if (digits == 0 || points > 1) return Malformed(text);
  const std::string unit = absl::AsciiStrToLower(absl::StripAsciiWhitespace(trimmed.substr(end)));
  for (const Unit& candidate : kUnits) {
    if (unit == candidate.name) return Scale(trimmed.substr(0, end), candidate.bytes, text);
  }
  return Malformed(text);
}

std::string FormatByteSize(int64_t bytes) {
  constexpr const char* kNames[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  const double magnitude = std::fabs(static_cast<double>(bytes));
  if (magnitude < 1024.0) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes) / 1024.0;
  int index = 0;
  while (std::fabs(value) >= 1024.0 && index < 5) {
    value /= 1024.0;
    ++index;
  }
  return absl::StrFormat("%.1f %s", value, kNames[index]);
}

}  // namespace blockswap::base
