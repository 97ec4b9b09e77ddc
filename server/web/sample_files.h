// SPDX-License-Identifier: Apache-2.0
// The sample pictures in a job's output directory, and no other file.
#ifndef BLOCKSWAP_SERVER_WEB_SAMPLE_FILES_H_
#define BLOCKSWAP_SERVER_WEB_SAMPLE_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace blockswap::server {

struct SampleFile {
  std::string name;   // "step-00000100.png", "sheet.png"
  int64_t step = -1;  // -1: the sheet of the first and the last round
  int64_t bytes = 0;
};

// In the order of their steps, the sheet last; the newest kMaxSamples of them. A directory that is
// not there has none.
inline constexpr int kMaxSamples = 200;
std::vector<SampleFile> ListSamples(const std::string& output_directory);

// The file's bytes. NotFound: no name that a worker gives, not there, a link, no regular file, no
// PNG, or larger than 32 MiB.
absl::StatusOr<std::string> ReadSample(const std::string& output_directory,
                                       const std::string& name);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_WEB_SAMPLE_FILES_H_
