// SPDX-License-Identifier: Apache-2.0
// Parses JSON from files of unknown origin without exceptions and with a limit on nesting.
#ifndef BLOCKSWAP_WORKER_IO_JSON_TEXT_H_
#define BLOCKSWAP_WORKER_IO_JSON_TEXT_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace blockswap::worker {

// InvalidArgument, naming `what`, when the text is no JSON or is nested deeper than `max_depth`.
absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text, const std::string& what,
                                         int max_depth = 16);

// A name from a file for use in a message: quoted, control bytes escaped, cut after 200 bytes.
std::string Quoted(absl::string_view name);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_IO_JSON_TEXT_H_
