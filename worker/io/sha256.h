// SPDX-License-Identifier: Apache-2.0
// SHA-256 of bytes and of whole files, as lower-case hexadecimal text.
#ifndef BLOCKSWAP_WORKER_IO_SHA256_H_
#define BLOCKSWAP_WORKER_IO_SHA256_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace blockswap::worker {

std::string Sha256Hex(absl::string_view bytes);

struct FileDigest {
  std::string sha256;
  int64_t bytes = 0;
};
// Reads the file in pieces; errors as OpenRegularFile, or what the read failed with.
absl::StatusOr<FileDigest> Sha256OfFile(const std::string& path);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_IO_SHA256_H_
