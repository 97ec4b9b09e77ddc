// SPDX-License-Identifier: Apache-2.0
// "--set path=value" words as a spec and the mask that says which fields of it count.
#ifndef BLOCKSWAP_CLIENT_CLI_ASSIGNMENTS_H_
#define BLOCKSWAP_CLIENT_CLI_ASSIGNMENTS_H_

#include <string>
#include <vector>

#include "blockswap/v1/job.pb.h"
#include "client/cpp/errors.h"
#include "google/protobuf/field_mask.pb.h"

namespace blockswap::cli {

// Applies the words in order; returns what is wrong with them, all at once.
std::vector<client::FieldViolation> ApplyAssignments(const std::vector<std::string>& words,
                                                     v1::JobSpec* spec,
                                                     google::protobuf::FieldMask* mask);

}  // namespace blockswap::cli

#endif  // BLOCKSWAP_CLIENT_CLI_ASSIGNMENTS_H_
