// SPDX-License-Identifier: Apache-2.0
#include "client/cli/table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/text/utf8.h"

namespace blockswap::cli {
namespace {

constexpr size_t kGap = 2;

// Characters, not bytes; wide ones of East Asian scripts count as one, which only shifts their row.
size_t Columns(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string OneLine(const std::string& cell) {
  std::string line = proto::ToPrintable(cell);
  std::replace(line.begin(), line.end(), '\n', ' ');
  std::replace(line.begin(), line.end(), '\t', ' ');
  return line;
}

std::string Cut(const std::string& line, size_t width) {
  size_t columns = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    if ((line[i] & 0xC0) != 0x80 && ++columns > width) return line.substr(0, i);
  }
  return line;
}

}  // namespace

void Table::AddRow(std::vector<std::string> cells) {
  for (std::string& cell : cells) cell = OneLine(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::Render(int width) const {
  std::vector<size_t> widths;
  for (const std::vector<std::string>& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Columns(row[i]));
  }
  std::string text;
  for (const std::vector<std::string>& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line.append(widths[i] - Columns(row[i]) + kGap, ' ');
    }
    if (width > 0) line = Cut(line, static_cast<size_t>(width));
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

}  // namespace blockswap::cli
