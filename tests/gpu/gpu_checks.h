// SPDX-License-Identifier: Apache-2.0
// What is measured on a card before it is trusted: the link, the ring against its bound, equal
// bits, memory and a real block stack.
#ifndef BLOCKSWAP_TESTS_GPU_GPU_CHECKS_H_
#define BLOCKSWAP_TESTS_GPU_GPU_CHECKS_H_

#include <string>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"

namespace blockswap::gpu {

struct CheckOptions {
  std::string device = "cuda:0";  // or "host"
  bool tiny = false;              // sizes that a slow CPU finishes in seconds
  std::string scratch;            // directory for the files of the models
};

using Report = nlohmann::ordered_json;

// Rates of the bus.
absl::StatusOr<Report> CheckLink(const CheckOptions& options);

// Products on the compute stream stand for blocks; copies take half, once and twice as long. For
// each: step time of all blocks resident, of the planner's ring, and the bound.
absl::StatusOr<Report> CheckRing(const CheckOptions& options);

// A small job trained by several plans: losses and adapters must have the same bits. `ok` says so.
absl::StatusOr<Report> CheckEqualBits(const CheckOptions& options);

// The base of a small job trained by several plans: losses must have the same bits, and every byte
// of gradients that came down must be counted. `ok` says so.
absl::StatusOr<Report> CheckBaseTraining(const CheckOptions& options);

// Predicted and measured peak of device memory, for a resident and a streaming plan of a
// middle-sized model. `ok`: at
// most 5 % above the prediction.
absl::StatusOr<Report> CheckMemory(const CheckOptions& options);

// Step time of the 60 blocks of Qwen-Image at 1024x1024, none and 40 swapped.
absl::StatusOr<Report> CheckStack(const CheckOptions& options);

}  // namespace blockswap::gpu

#endif  // BLOCKSWAP_TESTS_GPU_GPU_CHECKS_H_
