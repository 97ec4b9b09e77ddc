// SPDX-License-Identifier: Apache-2.0
// The daemon's log: spdlog's default logger, one line an event, on standard error.
#ifndef BLOCKSWAP_SERVER_BASE_LOG_H_
#define BLOCKSWAP_SERVER_BASE_LOG_H_

#include <spdlog/spdlog.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "proto/text/utf8.h"
#include "server/base/log_lines.h"
#include "server/base/redaction.h"

namespace blockswap::server {

// Names, messages and paths come from others: whatever they hold, an event stays one line and
// steers no terminal. Only what is written counts.
template <typename... Args>
void LogAt(spdlog::level::level_enum level, LogLevel counted,
           spdlog::format_string_t<Args...> format, Args&&... args) {
  spdlog::logger* logger = spdlog::default_logger_raw();
  if (!logger->should_log(level)) return;
  CountedLogLines().Add(LogSource::kServer, counted);
  logger->log(level,
              proto::ToOneLine(WithoutSecrets(fmt::format(format, std::forward<Args>(args)...))));
}

template <typename... Args>
void LogInfo(spdlog::format_string_t<Args...> format, Args&&... args) {
  LogAt<Args...>(spdlog::level::info, LogLevel::kInfo, format, std::forward<Args>(args)...);
}
template <typename... Args>
void LogWarning(spdlog::format_string_t<Args...> format, Args&&... args) {
  LogAt<Args...>(spdlog::level::warn, LogLevel::kWarning, format, std::forward<Args>(args)...);
}
template <typename... Args>
void LogError(spdlog::format_string_t<Args...> format, Args&&... args) {
  LogAt<Args...>(spdlog::level::err, LogLevel::kError, format, std::forward<Args>(args)...);
}

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_BASE_LOG_H_
