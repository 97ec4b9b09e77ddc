// SPDX-License-Identifier: Apache-2.0
// A job file as a stranger writes it: YAML or JSON to a message to the checked configuration.
#include <cstdint>
#include <string>
#include <vector>

#include "proto/job_file/job_file.h"
#include "worker/config/spec_validation.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::vector<blockswap::proto::JobFileFault> faults;
  const auto spec = blockswap::proto::ParseJobFile(text, &faults);
  if (!spec.ok()) return 0;
  // Roots that hold nothing: every path is looked up, none is found.
  const blockswap::worker::Roots roots{"/proc/self/fdinfo", "/proc/self/fdinfo", ""};
  blockswap::worker::ValidateSpec(*spec, roots);
  return 0;
}
