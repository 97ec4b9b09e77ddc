// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/job_order.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace blockswap::server {
namespace {

using Key = JobOrder::Key;

struct NamedKey {
  absl::string_view name;
  Key key;
  bool descending_by_default;
};

constexpr NamedKey kKeys[] = {
    {"create_time", Key::kCreateTime, true},
    {"update_time", Key::kUpdateTime, true},
    {"end_time", Key::kEndTime, true},
    {"priority", Key::kPriority, true},
    {"queue_position", Key::kQueuePosition, false},
    {"name", Key::kName, false},
};

absl::Status BadOrder(absl::string_view text) {
  std::string names;
  for (const NamedKey& named : kKeys)
    absl::StrAppend(&names, names.empty() ? "" : ", ", named.name);
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\" is none of ", names, ", optionally followed by asc or desc"));
}

}  // namespace

absl::StatusOr<JobOrder> ParseJobOrder(absl::string_view text) {
  const std::vector<std::string> words = absl::StrSplit(text, ' ', absl::SkipWhitespace());
  if (words.empty()) return JobOrder();
  if (words.size() > 2) return BadOrder(text);
  for (const NamedKey& named : kKeys) {
    if (words[0] != named.name) continue;
    JobOrder order{named.key, named.descending_by_default};
    if (words.size() == 1) return order;
    if (words[1] != "asc" && words[1] != "desc") return BadOrder(text);
    order.descending = words[1] == "desc";
    return order;
  }
  return BadOrder(text);
}

PageKey PageKeyOf(const JobOrder& order, const JobRecord& job) {
  PageKey key;
  key.created_sequence = job.created_sequence;
  switch (order.key) {
    case Key::kCreateTime:
      break;  // the sequence is the key: a clock that was set back does not change the order
    case Key::kUpdateTime:
      key.number = job.update_micros;
      break;
    case Key::kEndTime:
      key.number = job.end_micros;
      break;
    case Key::kPriority:
    case Key::kQueuePosition:
      key.number = job.priority;
      break;
    case Key::kName:
      key.text = job.name;
      break;
  }
  return key;
}

std::string PageKeyToText(const PageKey& key) {
  return absl::StrCat(key.created_sequence, " ", key.number, " ", key.text);
}

absl::StatusOr<PageKey> PageKeyFromText(absl::string_view text) {
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits(' ', 2));
  PageKey key;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &key.created_sequence) ||
      !absl::SimpleAtoi(parts[1], &key.number)) {
    return absl::InvalidArgumentError("is no place in a list of jobs");
  }
  key.text = parts[2];
  return key;
}

}  // namespace blockswap::server
