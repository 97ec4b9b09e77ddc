// SPDX-License-Identifier: Apache-2.0
// What one stream of a double-stream block holds on the device, moment by moment of its recompute
// and backward.
#ifndef BLOCKSWAP_WORKER_FAMILY_STREAM_PHASES_H_
#define BLOCKSWAP_WORKER_FAMILY_STREAM_PHASES_H_

#include <cstdint>

#include "worker/family/activation_estimate.h"

namespace blockswap::worker {

// Bytes, see Note [Activation estimate]. Borrows what it is made of.
class StreamPhases {
 public:
  // `tokens`: of all samples of a batch.
  StreamPhases(const DoubleStreamShape& shape, const StreamAdapters& adapters, int64_t tokens)
      : shape_(shape), adapters_(adapters), tokens_(tokens) {}

  int64_t rows(int64_t count) const { return count * tokens_ * shape_.dim * shape_.dtype_bytes; }

  // Kept from forward to backward: by what comes before the output projection, and in all (without
  // the stream's output).
  int64_t KeptByAttention() const;
  int64_t Kept() const;

  // The worst moment of its own forward after attention; of its own backward down to the output of
  // attention; and what it holds while the other stream has its backward, before and after its own.
  int64_t InForward() const;
  int64_t InBackward() const;
  int64_t BeforeBackward() const { return Kept() + rows(2); }
  int64_t AfterBackward() const { return KeptByAttention() + rows(2 + 2); }
  // While the gradients of attention are made.
  int64_t AtAttention() const { return KeptByAttention() + rows(3 + 1 + 4); }

 private:
  struct Linear {
    int64_t in = 0, out = 0, rank = 0;
    bool activates_input = false;
  };
  int64_t LinearBackward(const Linear& linear) const;
  int64_t AdapterGradients(const Linear& linear) const;
  int64_t Scratch(int64_t rows, int64_t columns, int64_t inner, bool left_transposed = false) const;

  const DoubleStreamShape& shape_;
  const StreamAdapters& adapters_;
  const int64_t tokens_;
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_FAMILY_STREAM_PHASES_H_
