// SPDX-License-Identifier: Apache-2.0
// One job spec laid over another: what a template's user or a retry changes.
#ifndef BLOCKSWAP_SERVER_RPC_SPEC_MERGE_H_
#define BLOCKSWAP_SERVER_RPC_SPEC_MERGE_H_

#include <string>
#include <vector>

#include "blockswap/v1/job.pb.h"

namespace blockswap::server {

// Paths of all fields that are set, "training.max_steps"; lists and maps as a whole.
std::vector<std::string> SetPaths(const v1::JobSpec& spec);

// Takes the fields that `paths` name over, whole lists and maps instead of adding to them; what
// `from` leaves out becomes unset. REQUIRES: the paths exist.
void TakeOverPaths(const std::vector<std::string>& paths, const v1::JobSpec& from, v1::JobSpec* to);

// Whether `path` is one of `groups` or lies in one: "memory" holds "memory.ring_size".
bool IsWithin(const std::string& path, const std::vector<std::string>& groups);

// Both have the same value at `path`.
bool AgreeAt(const std::string& path, const v1::JobSpec& a, const v1::JobSpec& b);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_SPEC_MERGE_H_
