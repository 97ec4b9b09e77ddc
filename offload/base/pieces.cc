// SPDX-License-Identifier: Apache-2.0
#include "offload/base/pieces.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "offload/base/status_macros.h"

namespace blockswap::base {
namespace {

constexpr int64_t kMaxThreads = 4;  // reach what a drive or the memory of one socket gives

}  // namespace

absl::Status ForPieces(int64_t bytes,
                       absl::FunctionRef<absl::Status(int64_t offset, int64_t size)> work) {
  const int64_t num_pieces = NumPieces(bytes);
  std::vector<absl::Status> done(static_cast<size_t>(num_pieces));
  std::atomic<int64_t> next{0};
  const auto run = [bytes, num_pieces, work, &done, &next] {
    for (int64_t piece = next++; piece < num_pieces; piece = next++) {
      const int64_t offset = piece * kPieceBytes;
      done[static_cast<size_t>(piece)] = work(offset, std::min(kPieceBytes, bytes - offset));
    }
  };
  std::vector<std::thread> helpers;
  while (static_cast<int64_t>(helpers.size()) + 1 < std::min(num_pieces, kMaxThreads)) {
    helpers.emplace_back(run);
  }
  run();
  for (std::thread& helper : helpers) helper.join();
  for (const absl::Status& status : done) BLOCKSWAP_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

}  // namespace blockswap::base
