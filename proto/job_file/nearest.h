// SPDX-License-Identifier: Apache-2.0
// Edit distance for "did you mean".
#ifndef BLOCKSWAP_PROTO_JOB_FILE_NEAREST_H_
#define BLOCKSWAP_PROTO_JOB_FILE_NEAREST_H_

#include <string>

namespace blockswap::proto {

// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`. Case and '-'
// versus '_' do not count.
int EditDistance(const std::string& a, const std::string& b);

}  // namespace blockswap::proto

#endif  // BLOCKSWAP_PROTO_JOB_FILE_NEAREST_H_
