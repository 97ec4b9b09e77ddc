// SPDX-License-Identifier: Apache-2.0
// The order of ListJobs, and where in it a page ends.
#ifndef BLOCKSWAP_SERVER_JOBS_JOB_ORDER_H_
#define BLOCKSWAP_SERVER_JOBS_JOB_ORDER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/jobs/job.h"

namespace blockswap::server {

// Jobs with equal keys follow their creation, in the same direction.
struct JobOrder {
  enum class Key { kCreateTime, kUpdateTime, kEndTime, kPriority, kName, kQueuePosition };
  Key key = Key::kCreateTime;
  bool descending = true;
};

// The last job of a page, as far as the order looks at it.
struct PageKey {
  int64_t created_sequence = 0;
  int64_t number = 0;  // of times and priorities
  std::string text;    // of names
};

// "create_time desc", "name", "" (newest first). InvalidArgument naming the keys there are.
absl::StatusOr<JobOrder> ParseJobOrder(absl::string_view text);

PageKey PageKeyOf(const JobOrder& order, const JobRecord& job);
// One line of text for a token, and back; InvalidArgument when it is none.
std::string PageKeyToText(const PageKey& key);
absl::StatusOr<PageKey> PageKeyFromText(absl::string_view text);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_JOBS_JOB_ORDER_H_
