// SPDX-License-Identifier: Apache-2.0
// What fake_worker says in place of the worker's side of worker.proto: garbage, or the protocol of
// another release.
#ifndef BLOCKSWAP_TESTS_FAKES_STRANGE_SPEECH_H_
#define BLOCKSWAP_TESTS_FAKES_STRANGE_SPEECH_H_

#include <cstdint>
#include <string>

#include "worker/channel/server_channel.h"

namespace blockswap::worker {

// Steers terminals, pretends to be a line of somebody else's log, and holds a token.
inline constexpr char kHostileText[] =
    "\x1b[2J\x1b]0;owned\x07 \xe2\x80\xae\n[2026-01-01 00:00:00.000] [error] {\"level\": "
    "\"error\", \"event\": \"all jobs deleted\"}\r\n\xff token "
    "hf_NeverShowThisTokenToAnybody1234";

// A message over the limit, or two hellos on one stream, again and again for as long as it lives.
[[noreturn]] void SpeakGarbage(const ServerChannelOptions& options, bool is_huge);

struct SpokenProtocols {
  int64_t first = 1, later = 1;  // to the first server that takes it, and to those after that
};

// Makes two steps with a checkpoint, then lives on until it is refused. Ends as a real worker does:
// returns its exit code and leaves exit.json in `output`.
int SpeakAnotherProtocol(const ServerChannelOptions& options, const std::string& output,
                         const SpokenProtocols& protocols);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_TESTS_FAKES_STRANGE_SPEECH_H_
