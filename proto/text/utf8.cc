// SPDX-License-Identifier: Apache-2.0
#include "proto/text/utf8.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace blockswap::proto {
namespace {

unsigned char ByteAt(absl::string_view text, size_t i) {
  return static_cast<unsigned char>(text[i]);
}

uint32_t CodePointOf(absl::string_view character) {
  if (character.size() == 1) return ByteAt(character, 0);
  uint32_t point = ByteAt(character, 0) & (0x7Fu >> character.size());
  for (size_t k = 1; k < character.size(); ++k) point = point << 6 | (ByteAt(character, k) & 0x3Fu);
  return point;
}

// Marks, embeddings, overrides and isolates of the direction of writing, and the two separators.
bool IsDirectionOrLine(uint32_t point) {
  return point == 0x061C || point == 0x200E || point == 0x200F ||
         (point >= 0x2028 && point <= 0x202E) || (point >= 0x2066 && point <= 0x2069);
}

bool IsControl(absl::string_view character) {
  const unsigned char first = ByteAt(character, 0);
  if (character.size() == 1)
    return (first < 0x20 && first != '\n' && first != '\t') || first == 0x7F;
  if (first == 0xC2) return ByteAt(character, 1) < 0xA0;  // U+0080 to U+009F
  return IsDirectionOrLine(CodePointOf(character));
}

}  // namespace

size_t Utf8Length(absl::string_view text, size_t offset) {
  const unsigned char lead = ByteAt(text, offset);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || offset + length > text.size()) return 0;
  for (size_t k = 1; k < length; ++k) {
    if ((ByteAt(text, offset + k) & 0xC0) != 0x80) return 0;
  }
  const unsigned char second = ByteAt(text, offset + 1);
  if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
      (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F)) {
    return 0;
  }
  return length;
}

std::string ToValidUtf8(absl::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const size_t length = Utf8Length(text, i);
    if (length == 0) {
      valid += '?';
      ++i;
      continue;
    }
    valid.append(text.data() + i, length);
    i += length;
  }
  return valid;
}

std::string ToPrintable(absl::string_view text) {
  std::string printable;
  printable.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const size_t length = Utf8Length(text, i);
    if (length == 0) {
      printable += '?';
      ++i;
      continue;
    }
    const absl::string_view character = text.substr(i, length);
    if (!IsControl(character)) printable.append(character.data(), character.size());
    i += length;
  }
  return printable;
}

std::string ToOneLine(absl::string_view text) {
  std::string line;
  line.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const size_t length = Utf8Length(text, i);
    const absl::string_view character = text.substr(i, std::max<size_t>(length, 1));
    i += character.size();
    if (length == 0) {
      line += '?';
    } else if (character == "\\") {
      line += "\\\\";
    } else if (character == "\n") {
      line += "\\n";
    } else if (character == "\t") {
      line += "\\t";
    } else if (character.size() == 1 && IsControl(character)) {
      absl::StrAppend(&line, "\\x", absl::Hex(ByteAt(character, 0), absl::kZeroPad2));
    } else if (IsControl(character)) {
      absl::StrAppend(&line, "\\u", absl::Hex(CodePointOf(character), absl::kZeroPad4));
    } else {
      line.append(character.data(), character.size());
    }
  }
  return line;
}

std::string Shorten(absl::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return std::string(text);
  size_t end = max_bytes;
  while (end > 0 && (ByteAt(text, end) & 0xC0) == 0x80) --end;
  return absl::StrCat(text.substr(0, end), "...");
}

}  // namespace blockswap::proto
