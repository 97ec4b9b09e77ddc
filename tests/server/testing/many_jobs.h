// SPDX-License-Identifier: Apache-2.0
// A state store with as many jobs as a long-lived server has, made at once.
#ifndef BLOCKSWAP_TESTS_SERVER_TESTING_MANY_JOBS_H_
#define BLOCKSWAP_TESTS_SERVER_TESTING_MANY_JOBS_H_

#include <string>

#include "absl/status/status.h"

namespace blockswap::server {

struct ManyJobs {
  int finished = 0, queued = 0;
  // Bytes of the plan that each job carries, as text.
  int plan_bytes = 2000;
};

// Makes the store at `path`: finished jobs first, named finished-N and queued-N, with priorities 0
// to 4, a label "team" of 20 values, and a CREATED event each. REQUIRES: nothing is there.
absl::Status MakeStore(const std::string& path, const ManyJobs& jobs);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_TESTS_SERVER_TESTING_MANY_JOBS_H_
