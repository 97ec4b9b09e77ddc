// SPDX-License-Identifier: Apache-2.0
// Early returns for absl::Status and absl::StatusOr; to be deleted when the pinned abseil brings its own.
#ifndef BLOCKSWAP_OFFLOAD_BASE_STATUS_MACROS_H_
#define BLOCKSWAP_OFFLOAD_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define BLOCKSWAP_CONCAT_INNER(a, b) a##b
#define BLOCKSWAP_CONCAT(a, b) BLOCKSWAP_CONCAT_INNER(a, b)

#define BLOCKSWAP_RETURN_IF_ERROR(expr)                              \
  do {                                                               \
    absl::Status blockswap_status = (expr);                          \
    if (!blockswap_status.ok()) return blockswap_status;             \
  } while (false)

#define BLOCKSWAP_ASSIGN_OR_RETURN(lhs, expr) \
  BLOCKSWAP_ASSIGN_OR_RETURN_INNER(BLOCKSWAP_CONCAT(blockswap_status_or_, __LINE__), lhs, expr)

#define BLOCKSWAP_ASSIGN_OR_RETURN_INNER(status_or, lhs, expr) \
  auto status_or = (expr);                                     \
  if (!status_or.ok()) return std::move(status_or).status();   \
  lhs = *std::move(status_or)

#endif  // BLOCKSWAP_OFFLOAD_BASE_STATUS_MACROS_H_
