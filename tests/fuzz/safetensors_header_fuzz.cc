// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file, and what must hold of every one that is taken.
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>

#include "worker/io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // The first byte chooses how much data follows the header.
  if (size == 0) return 0;
  const int64_t data_bytes = int64_t{1} << (data[0] % 40);
  const absl::string_view header(reinterpret_cast<const char*>(data) + 1, size - 1);
  for (const int64_t bytes : {data_bytes, int64_t{0}, int64_t{16}}) {
    std::map<std::string, blockswap::worker::TensorEntry> tensors;
    std::map<std::string, std::string> metadata;
    if (!blockswap::worker::ParseSafetensorsHeader(header, bytes, &tensors, &metadata).ok())
      continue;
    for (const auto& [name, tensor] : tensors) {
      const bool inside = tensor.offset >= 0 && tensor.bytes >= 0 && tensor.bytes <= bytes &&
                          tensor.offset <= bytes - tensor.bytes;
      if (!inside) std::abort();
    }
  }
  return 0;
}
