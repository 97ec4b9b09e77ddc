// SPDX-License-Identifier: Apache-2.0
// How long and how often a broken stream or call is tried again.
#ifndef BLOCKSWAP_CLIENT_CPP_STREAM_RESUME_H_
#define BLOCKSWAP_CLIENT_CPP_STREAM_RESUME_H_

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace blockswap::client {

struct StreamOptions {
  // The stream ends with DeadlineExceeded then.
  absl::Time deadline = absl::InfiniteFuture();
  // How long a server that is away is waited for, counted from its last word.
  absl::Duration patience = absl::Minutes(2);
};

// Counts the tries of one stream. Thread safety: none.
class ResumeBackoff final {
 public:
  explicit ResumeBackoff(const StreamOptions& options) : options_(options) {}

  // The server spoke: the next break starts from the shortest wait.
  void Reset();
  // How long to wait before the next try.
  absl::Duration NextDelay();
  // The server has been away for longer than the options allow.
  bool Exhausted() const;
  const StreamOptions& options() const { return options_; }

 private:
  const StreamOptions options_;
  absl::Time last_word_ = absl::Now();
  absl::Duration delay_ = absl::ZeroDuration();
};

// True for errors after which a stream goes on from where it stopped: the server is away, restarts,
// or cut a slow reader.
bool IsResumable(const absl::Status& status);

}  // namespace blockswap::client

#endif  // BLOCKSWAP_CLIENT_CPP_STREAM_RESUME_H_
