// SPDX-License-Identifier: Apache-2.0
// Columns of text for people, as wide as their widest cell.
#ifndef BLOCKSWAP_CLIENT_CLI_TABLE_H_
#define BLOCKSWAP_CLIENT_CLI_TABLE_H_

#include <string>
#include <vector>

namespace blockswap::cli {

class Table final {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}

  // Missing cells are empty. Text is made printable and kept on one line.
  void AddRow(std::vector<std::string> cells);
  // Cut to `width` columns; 0: not at all.
  std::string Render(int width) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace blockswap::cli

#endif  // BLOCKSWAP_CLIENT_CLI_TABLE_H_
