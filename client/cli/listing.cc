// SPDX-License-Identifier: Apache-2.0
#include "client/cli/listing.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/table.h"
#include "offload/base/nearest_name.h"

namespace blockswap::cli {

absl::StatusOr<std::vector<size_t>> ChooseColumns(const std::vector<std::string>& names,
                                                  const std::vector<bool>& is_wide,
                                                  const std::vector<std::string>& wanted,
                                                  bool show_wide) {
  std::vector<size_t> chosen;
  if (wanted.empty()) {
    for (size_t i = 0; i < names.size(); ++i) {
      if (show_wide || !is_wide[i]) chosen.push_back(i);
    }
    return chosen;
  }
  for (const std::string& word : wanted) {
    const std::string upper = absl::AsciiStrToUpper(word);
    const auto found = std::find(names.begin(), names.end(), upper);
    if (found == names.end()) {
      const std::string nearest = base::NearestName(upper, names);
      return absl::InvalidArgumentError(
          absl::StrCat("no column '", word, "'",
                       nearest.empty() ? "" : absl::StrCat(", did you mean '", nearest, "'?"),
                       " there are: ", absl::AsciiStrToLower(absl::StrJoin(names, ", "))));
    }
    chosen.push_back(static_cast<size_t>(found - names.begin()));
  }
  return chosen;
}

std::string RenderTable(const Session& session, const std::vector<std::string>& header,
                        const std::vector<std::vector<std::string>>& rows) {
  Table table(header);
  for (const std::vector<std::string>& row : rows) table.AddRow(row);
  return table.Render(session.table_width());
}

}  // namespace blockswap::cli
