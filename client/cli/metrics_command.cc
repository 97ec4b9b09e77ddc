// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/commands.h"
#include "client/cli/job_lookup.h"
#include "client/cli/table.h"
#include "proto/text/utf8.h"

namespace blockswap::cli {

ExitCode RunMetrics(Session& session, const Arguments& arguments) {
  const absl::StatusOr<client::ServerClient*> client = session.Client();
  if (!client.ok()) return session.Fail(client.status());
  const absl::StatusOr<v1::Job> job = FindJob(**client, arguments.jobs[0]);
  if (!job.ok()) return session.Fail(job.status());
  v1::ListMetricPointsRequest request;
  request.set_name(job->name());
  for (const std::string& series : arguments.series) request.add_series(series);
  const absl::StatusOr<v1::ListMetricPointsResponse> response =
      (*client)->ListMetricPoints(request);
  if (!response.ok()) return session.Fail(response.status());
  if (session.json()) {
    session.PrintJson(*response);
    return kOk;
  }

  // One row a step, one column a series; a series may lack a step.
  std::vector<std::string> header = {"step"};
  std::map<int64_t, std::vector<std::string>> rows;
  const size_t columns = static_cast<size_t>(response->series_size());
  for (size_t i = 0; i < columns; ++i) {
    const v1::MetricSeries& series = response->series(static_cast<int>(i));
    header.push_back(proto::ToPrintable(series.name()));
    for (const v1::MetricPoint& point : series.points()) {
      std::vector<std::string>& row = rows[point.step()];
      row.resize(columns);
      // CSV is for programs: every digit; people get six.
      row[i] = arguments.csv ? absl::StrFormat("%.17g", point.value())
                             : absl::StrFormat("%.6g", point.value());
    }
  }
  if (arguments.csv) {
    session.out() << absl::StrJoin(header, ",") << "\n";
    for (const auto& [step, row] : rows)
      session.out() << step << "," << absl::StrJoin(row, ",") << "\n";
    return kOk;
  }
  Table table(header);
  for (const auto& [step, row] : rows) {
    std::vector<std::string> cells = {absl::StrCat(step)};
    cells.insert(cells.end(), row.begin(), row.end());
    table.AddRow(std::move(cells));
  }
  session.out() << table.Render(session.table_width());
  return kOk;
}

}  // namespace blockswap::cli
