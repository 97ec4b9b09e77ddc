// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/call.h"
#include "client/cli/commands.h"
#include "client/cli/table.h"
#include "proto/text/utf8.h"

namespace blockswap::cli {
namespace {

// One row a step, one column a series; a series may lack a step.
ExitCode ShowSeries(const Session& session, const Arguments& arguments,
                    const v1::ListMetricPointsResponse& response) {
  if (session.structured()) {
    session.Print(response);
    return kOk;
  }
  std::vector<std::string> header = {"step"};
  std::map<int64_t, std::vector<std::string>> rows;
  const size_t columns = static_cast<size_t>(response.series_size());
  for (size_t i = 0; i < columns; ++i) {
    const v1::MetricSeries& series = response.series(static_cast<int>(i));
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

}  // namespace

ExitCode RunMetrics(Session& session, const Arguments& arguments) {
  return CallForJob(
      session, arguments,
      [&arguments](client::ServerClient& client, const v1::Job& job) {
        v1::ListMetricPointsRequest request;
        request.set_name(job.name());
        for (const std::string& series : arguments.series) request.add_series(series);
        return client.ListMetricPoints(request);
      },
      [&](const v1::ListMetricPointsResponse& response) {
        return ShowSeries(session, arguments, response);
      });
}

}  // namespace blockswap::cli
