// SPDX-License-Identifier: Apache-2.0
#include "worker/train/train_log.h"

#include <utility>

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include "absl/strings/str_cat.h"

namespace blockswap::worker {

struct TrainLog::Sink {
  std::shared_ptr<spdlog::logger> logger;
};

absl::StatusOr<std::unique_ptr<TrainLog>> TrainLog::Open(const std::string& path,
                                                        bool also_stderr) {
  auto sink = std::make_unique<Sink>();
  try {  // spdlog answers a file it cannot open with an exception
    sink->logger = std::make_shared<spdlog::logger>(
        "train", std::make_shared<spdlog::sinks::basic_file_sink_mt>(path));
  } catch (const spdlog::spdlog_ex& error) {
    return absl::InvalidArgumentError(absl::StrCat("cannot write the log: ", error.what()));
  }
  if (also_stderr) {
    sink->logger->sinks().push_back(std::make_shared<spdlog::sinks::stderr_sink_mt>());
  }
  sink->logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
  sink->logger->flush_on(spdlog::level::info);
  sink->logger->set_error_handler(
      [](const std::string&) {});  // a full disk: the trainer reports it where it matters
  return std::unique_ptr<TrainLog>(new TrainLog(std::move(sink)));
}

TrainLog::TrainLog(std::unique_ptr<Sink> sink) : sink_(std::move(sink)) {}

TrainLog::~TrainLog() = default;

void TrainLog::Info(const std::string& message) { sink_->logger->info("{}", message); }

void TrainLog::Warn(const std::string& message) { sink_->logger->warn("{}", message); }

}  // namespace blockswap::worker
