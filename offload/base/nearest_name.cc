// SPDX-License-Identifier: Apache-2.0
#include "offload/base/nearest_name.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/ascii.h"

namespace blockswap::base {
namespace {

// Longer words are no typing slips, and the work grows with the square.
constexpr size_t kLongestWord = 128;

std::string Folded(const std::string& word) {
  std::string folded = absl::AsciiStrToLower(word);
  std::replace(folded.begin(), folded.end(), '-', '_');
  return folded;
}

}  // namespace

int EditDistance(const std::string& a_raw, const std::string& b_raw) {
  const std::string a = Folded(a_raw), b = Folded(b_raw);
  std::vector<int> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, above);
    std::swap(above, row);
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int substituted = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, substituted});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string NearestName(const std::string& word, const std::vector<std::string>& candidates) {
  if (word.empty() || word.size() > kLongestWord) return "";
  std::string nearest;
  int nearest_distance = 0;
  for (const std::string& candidate : candidates) {
    if (candidate.empty() || candidate.size() > kLongestWord) continue;
    const int distance = EditDistance(word, candidate);
    // A third of the letters wrong is another word, not a slip.
    const int limit =
        std::clamp(static_cast<int>(std::min(word.size(), candidate.size())) / 3, 1, 3);
    if (distance > limit || distance >= static_cast<int>(candidate.size())) continue;
    if (nearest.empty() || distance < nearest_distance) {
      nearest = candidate;
      nearest_distance = distance;
    }
  }
  return nearest;
}

}  // namespace blockswap::base
