// SPDX-License-Identifier: Apache-2.0
// Finds the name someone probably meant, for error messages.
#ifndef BLOCKSWAP_WORKER_IO_NEAREST_NAME_H_
#define BLOCKSWAP_WORKER_IO_NEAREST_NAME_H_

#include <string>
#include <vector>

namespace blockswap::worker {

// The candidate of least edit distance, or empty when none is within a third of the word's length
// (at least 1, at most 3 edits). The job file has its own: data sets and families must not depend
// on proto/.
std::string NearestName(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_IO_NEAREST_NAME_H_
