// SPDX-License-Identifier: Apache-2.0
// The fake worker's checkpoints when they are real ones: written, verified and found by the real
// worker's code, of a state that says nothing.
#ifndef BLOCKSWAP_TESTS_FAKES_FAKE_CHECKPOINTS_H_
#define BLOCKSWAP_TESTS_FAKES_FAKE_CHECKPOINTS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "worker/channel/reporter.h"

namespace blockswap {

class FakeCheckpoints final {
 public:
  // Below the job's output directory. At the steps from `full_from` to `full_to` the state is said
  // to be larger than any disk.
  FakeCheckpoints(const std::string& output, int64_t full_from, int64_t full_to);

  // Fills in the step to go on after, and what was skipped.
  void Resume(worker::ReadyReport& ready) const;
  // As the real worker's saver does: a failure is a warning, the third in a row, or one of a save
  // that is required, the end.
  std::optional<worker::ExitReport> Save(int64_t step, bool required, worker::Reporter& reporter);

 private:
  const std::string directory_;
  const int64_t full_from_, full_to_;
  int64_t last_step_ = 0;
  int failures_ = 0;  // in a row
};

}  // namespace blockswap

#endif  // BLOCKSWAP_TESTS_FAKES_FAKE_CHECKPOINTS_H_
