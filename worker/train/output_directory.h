// SPDX-License-Identifier: Apache-2.0
// A job's output directory: claimed by one process at a time, never shared by two different jobs.
#ifndef BLOCKSWAP_WORKER_TRAIN_OUTPUT_DIRECTORY_H_
#define BLOCKSWAP_WORKER_TRAIN_OUTPUT_DIRECTORY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/train/job_identity.h"

namespace blockswap::worker {

// Owns: the lock on the directory, held until destruction (and given up by the system when the
// process dies).
class OutputDirectory {
 public:
  // Makes `path` where missing and marks it as this job's (job.json). AlreadyExists when it holds
  // outputs of another job, or of no job that is known, or when another process has it.
  static absl::StatusOr<std::unique_ptr<OutputDirectory>> Claim(const std::string& path,
                                                                const std::string& adapter_name,
                                                                const JobIdentity& identity);
  // Whose outputs `path` holds, as its job.json says; empty where there is none.
  static JobIdentity RecordedIdentity(const std::string& path);
  ~OutputDirectory();
  OutputDirectory(const OutputDirectory&) = delete;
  OutputDirectory& operator=(const OutputDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  std::string samples() const { return path_ + "/samples"; }
  std::string metrics_file() const { return path_ + "/metrics.jsonl"; }
  std::string plan_file() const { return path_ + "/plan.json"; }
  std::string log_file() const { return path_ + "/log.txt"; }
  std::string adapter_file() const;                      // "<name>.safetensors"
  std::string adapter_file_of_step(int64_t step) const;  // "<name>-step00000100.safetensors"

 private:
  OutputDirectory(std::string path, std::string adapter_name, int lock)
      : path_(std::move(path)), adapter_name_(std::move(adapter_name)), lock_(lock) {}

  const std::string path_, adapter_name_;
  const int lock_;
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_OUTPUT_DIRECTORY_H_
