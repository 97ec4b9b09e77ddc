// SPDX-License-Identifier: Apache-2.0
// Finds the name someone probably meant, for error messages.
#ifndef BLOCKSWAP_OFFLOAD_BASE_NEAREST_NAME_H_
#define BLOCKSWAP_OFFLOAD_BASE_NEAREST_NAME_H_

#include <string>
#include <vector>

namespace blockswap::base {

// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`. Case and '-'
// versus '_' do not count.
int EditDistance(const std::string& a, const std::string& b);

// The candidate of least edit distance, the first of equals; empty when none is within a third of
// the shorter word's length (at least 1, at most 3 edits).
std::string NearestName(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace blockswap::base

#endif  // BLOCKSWAP_OFFLOAD_BASE_NEAREST_NAME_H_
