// SPDX-License-Identifier: Apache-2.0
// Messages as JSON: the proto3 JSON mapping with the field names of the .proto files and every
// field present.
#ifndef BLOCKSWAP_CLIENT_CLI_JSON_OUTPUT_H_
#define BLOCKSWAP_CLIENT_CLI_JSON_OUTPUT_H_

#include <string>

#include "google/protobuf/message.h"

namespace blockswap::cli {

// Ends with a newline. `pretty` is for one document; otherwise the whole message is one line.
std::string ToJson(const google::protobuf::Message& message, bool pretty);

// The same as one YAML document.
std::string ToYaml(const google::protobuf::Message& message);

}  // namespace blockswap::cli

#endif  // BLOCKSWAP_CLIENT_CLI_JSON_OUTPUT_H_
