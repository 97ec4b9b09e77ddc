// SPDX-License-Identifier: Apache-2.0
// A dataset's TOML.
#include <cstdint>
#include <string>
#include <vector>

#include "worker/data/dataset_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  for (const char* family : {"qwen_image", "wan"}) {
    std::vector<blockswap::worker::FieldViolation> violations;
    blockswap::worker::ParseDatasetFile(text, family, &violations);
  }
  return 0;
}
