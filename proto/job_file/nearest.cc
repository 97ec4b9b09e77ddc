// SPDX-License-Identifier: Apache-2.0
#include "proto/job_file/nearest.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "proto/job_file/job_file.h"

namespace blockswap::proto {
namespace {

// Longer words are no typing slips, and the table grows with the square.
constexpr size_t kLongestWord = 64;

std::string Folded(const std::string& word) {
  std::string folded = absl::AsciiStrToLower(word);
  std::replace(folded.begin(), folded.end(), '-', '_');
  return folded;
}

}  // namespace

int EditDistance(const std::string& a_raw, const std::string& b_raw) {
  const std::string a = Folded(a_raw);
  const std::string b = Folded(b_raw);
  const size_t width = b.size() + 1;
  std::vector<int> table((a.size() + 1) * width);
  const auto at = [&table, width](size_t i, size_t j) -> int& { return table[i * width + j]; };
  for (size_t i = 0; i <= a.size(); ++i) at(i, 0) = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j) at(0, j) = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const int cost = a[i - 1] == b[j - 1] ? 0 : 1;
      int best = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, at(i - 1, j - 1) + cost});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        best = std::min(best, at(i - 2, j - 2) + 1);
      }
      at(i, j) = best;
    }
  }
  return at(a.size(), b.size());
}

std::string Nearest(const std::string& word, const std::vector<std::string>& candidates) {
  if (word.empty() || word.size() > kLongestWord) return "";
  std::string nearest;
  int nearest_distance = 0;
  for (const std::string& candidate : candidates) {
    if (candidate.empty() || candidate.size() > kLongestWord) continue;
    const int distance = EditDistance(word, candidate);
    // A third of the letters wrong is another word, not a slip.
    const int limit =
        std::max<int>(1, static_cast<int>(std::min(word.size(), candidate.size())) / 3);
    if (distance > limit || distance >= static_cast<int>(candidate.size())) continue;
    if (nearest.empty() || distance < nearest_distance) {
      nearest = candidate;
      nearest_distance = distance;
    }
  }
  return nearest;
}

}  // namespace blockswap::proto
