// SPDX-License-Identifier: Apache-2.0
// A list of jobs as SQL: which ones, in which order, from where on.
#ifndef BLOCKSWAP_SERVER_STORE_JOB_QUERY_H_
#define BLOCKSWAP_SERVER_STORE_JOB_QUERY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "server/jobs/job_filter.h"
#include "server/jobs/job_order.h"
#include "server/store/database.h"

namespace blockswap::server {

struct JobListQuery {
  JobFilter filter;
  JobOrder order;
  std::optional<PageKey> after;  // the last one of the page before
  int limit = 0;
};

// Answers created_sequence of each job, from indices as far as there are any: rows with their plans
// are read for the jobs of the page alone, not for those that are passed over or sorted.
struct PreparedList {
  std::string sql;
  std::vector<std::variant<int64_t, std::string>> values;

  Statement On(Database& database) const;
};
PreparedList PrepareList(const JobListQuery& query);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_STORE_JOB_QUERY_H_
