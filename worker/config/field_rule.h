// SPDX-License-Identifier: Apache-2.0
// What a field of a job file may hold, as it is checked: for who describes the file to a program.
#ifndef BLOCKSWAP_WORKER_CONFIG_FIELD_RULE_H_
#define BLOCKSWAP_WORKER_CONFIG_FIELD_RULE_H_

#include <string>
#include <vector>

namespace blockswap::worker {

struct FieldRule {
  enum class Form { kWord, kWhole, kReal, kBytes, kName };
  std::string field = {};  // "memory.ring_size"
  Form form = Form::kWord;
  std::vector<std::string> words = {};  // kWord: there are no others
  // Of the two kinds of number. Whole ones stay below 2^53.
  double least = 0, most = 0;
  bool above_least = false, below_most = false;  // the bound itself is not allowed
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_CONFIG_FIELD_RULE_H_
