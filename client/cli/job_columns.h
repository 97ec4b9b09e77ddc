// SPDX-License-Identifier: Apache-2.0
// The columns that list, get and top show of a job.
#ifndef BLOCKSWAP_CLIENT_CLI_JOB_COLUMNS_H_
#define BLOCKSWAP_CLIENT_CLI_JOB_COLUMNS_H_

#include <vector>

#include "absl/time/time.h"
#include "blockswap/v1/training.pb.h"
#include "client/cli/listing.h"

namespace blockswap::cli {

std::vector<Column<v1::Job>> JobColumns(absl::Time now);

}  // namespace blockswap::cli

#endif  // BLOCKSWAP_CLIENT_CLI_JOB_COLUMNS_H_
