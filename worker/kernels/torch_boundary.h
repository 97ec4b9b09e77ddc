// SPDX-License-Identifier: Apache-2.0
// The one place where LibTorch's exceptions become statuses.
#ifndef BLOCKSWAP_WORKER_KERNELS_TORCH_BOUNDARY_H_
#define BLOCKSWAP_WORKER_KERNELS_TORCH_BOUNDARY_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace blockswap::worker {

// Runs `body` and returns its status. Thrown instead of returned: c10::OutOfMemoryError and
// std::bad_alloc become ResourceExhausted, other c10::Error Internal (first line of the message, no
// backtrace), std::exception Unknown.
absl::Status RunContained(absl::FunctionRef<absl::Status()> body);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_KERNELS_TORCH_BOUNDARY_H_
