// SPDX-License-Identifier: Apache-2.0
// The daemon's log: spdlog's default logger, one line an event, on standard error.
#ifndef BLOCKSWAP_SERVER_BASE_LOG_H_
#define BLOCKSWAP_SERVER_BASE_LOG_H_

#include <spdlog/spdlog.h>

#include <string>

#include "absl/status/status.h"

namespace blockswap::server {

template <typename... Args>
void LogInfo(spdlog::format_string_t<Args...> format, Args&&... args) {
  spdlog::info(format, std::forward<Args>(args)...);
}
template <typename... Args>
void LogWarning(spdlog::format_string_t<Args...> format, Args&&... args) {
  spdlog::warn(format, std::forward<Args>(args)...);
}
template <typename... Args>
void LogError(spdlog::format_string_t<Args...> format, Args&&... args) {
  spdlog::error(format, std::forward<Args>(args)...);
}

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_BASE_LOG_H_
