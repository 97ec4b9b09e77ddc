// SPDX-License-Identifier: Apache-2.0
// log.txt of a job: one dated line a message. Free of spdlog's headers, whose fmt is not the one
// LibTorch brings.
#ifndef BLOCKSWAP_WORKER_TRAIN_TRAIN_LOG_H_
#define BLOCKSWAP_WORKER_TRAIN_TRAIN_LOG_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace blockswap::worker {

// Appends; a disk that refuses a line does not stop a job. Thread safety: safe.
class TrainLog {
 public:
  // With `also_stderr` every line goes to standard error too, which a server keeps as the attempt's
  // log. InvalidArgument when the file cannot be written at all.
  static absl::StatusOr<std::unique_ptr<TrainLog>> Open(const std::string& path, bool also_stderr);
  ~TrainLog();
  TrainLog(const TrainLog&) = delete;
  TrainLog& operator=(const TrainLog&) = delete;

  void Info(const std::string& message);
  void Warn(const std::string& message);

 private:
  struct Sink;
  explicit TrainLog(std::unique_ptr<Sink> sink);
  std::unique_ptr<Sink> sink_;
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_TRAIN_LOG_H_
