// SPDX-License-Identifier: Apache-2.0
// What the fake worker is told to do.
#ifndef BLOCKSWAP_TESTS_FAKES_FAKE_SCRIPT_H_
#define BLOCKSWAP_TESTS_FAKES_FAKE_SCRIPT_H_

#include <cstdint>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>

namespace blockswap {

// Words "key=number"; a bare key is 1.
//
// steps, save: how many, and every how many a checkpoint. hold_at: waits there for a stop or the
// file "go". crash_at, crash_attempts: SIGKILLs itself there in the first attempts. exit_at,
// exit_code, exit_attempts: fails there. ignore_stop, ignore_term: does not hear. no_attach: never
// connects. quiet_exit: exits with exit_code without a report. seconds: claimed duration of a step.
// lines: printed per step. pace: milliseconds that a step really takes. lifelike: loss, memory and
// swapping as of a real job, for people who look. hang_at: makes no more progress there, and hears
// nothing but signals. drop_at: closes its stream there and lives on without it. leave_child: a
// daemonised child outlives it. crash_load, crash_save, crash_stop: SIGKILLs itself there in the
// first attempts. hasty_exit: does not wait for the server to hear its end. speak_huge,
// speak_twice: keeps to no protocol. protocol: speaks that of another release in the first
// attempts; protocol_later: only to the next server, with two steps done. load_gib: waits half
// loaded, as at hold_at. link_gib, link_gbps: what each step claims to have brought to the device,
// and how fast. replan_at: another plan from there on. exit_load: fails with exit_code before it is
// ready. real_save, full_from, full_to: checkpoints as in fake_checkpoints.h. hostile: prints,
// warns of and fails with kHostileText.
class FakeScript {
 public:
  explicit FakeScript(const std::string& text) {
    std::istringstream words(text);
    std::string word;
    while (words >> word) {
      const size_t equals = word.find('=');
      values_[word.substr(0, equals)] =
          equals == std::string::npos ? 1 : std::atol(word.c_str() + equals + 1);
    }
  }
  int64_t Get(const char* key, int64_t otherwise) const {
    const auto found = values_.find(key);
    return found == values_.end() ? otherwise : found->second;
  }

 private:
  std::map<std::string, int64_t> values_;
};

}  // namespace blockswap

#endif  // BLOCKSWAP_TESTS_FAKES_FAKE_SCRIPT_H_
