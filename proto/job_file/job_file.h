// SPDX-License-Identifier: Apache-2.0
// Reads a job file (YAML or JSON) into a JobSpec message, with every fault of the file located and,
// where it helps, a suggestion.
#ifndef BLOCKSWAP_PROTO_JOB_FILE_JOB_FILE_H_
#define BLOCKSWAP_PROTO_JOB_FILE_JOB_FILE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "blockswap/v1/job.pb.h"
#include "google/protobuf/message.h"

namespace blockswap::proto {

struct JobFileFault {
  std::string field;        // path of the key, "memory.ring_sise"
  std::string description;  // 'unknown key, did you mean "ring_size"? (line 12)'
};

// Parses `text` (at most 256 KiB, depth and aliases limited, duplicate keys refused). The schema is
// the message's descriptor: it decides whether a scalar is text or a number. InvalidArgument when
// it is not YAML at all (line and column); unknown keys, wrong types and numbers out of range are
// collected in `faults`.
absl::StatusOr<v1::JobSpec> ParseJobFile(const std::string& text,
                                         std::vector<JobFileFault>* faults);

// The same for a file of another message; fields that are absent keep their value.
absl::Status ParseMessageFile(const std::string& text, google::protobuf::Message* message,
                              std::vector<JobFileFault>* faults);

// Applies "memory.ring_size=1", typed by the schema; repeated fields and maps take a JSON or YAML
// flow value.
absl::Status ApplyOverride(const std::string& assignment, v1::JobSpec* spec);

}  // namespace blockswap::proto

#endif  // BLOCKSWAP_PROTO_JOB_FILE_JOB_FILE_H_
