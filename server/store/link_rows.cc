// SPDX-License-Identifier: Apache-2.0
#include "server/store/link_rows.h"

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "server/store/row_columns.h"

namespace blockswap::server {
namespace {

constexpr Column<MeasuredLink> kColumns[] = {
    Of<&MeasuredLink::h2d>("h2d"),
    Of<&MeasuredLink::d2h>("d2h"),
    Of<&MeasuredLink::duplex_h2d>("duplex_h2d"),
    Of<&MeasuredLink::duplex_d2h>("duplex_d2h"),
    Of<&MeasuredLink::pageable>("pageable"),
    Of<&MeasuredLink::duplex_factor>("duplex_factor"),
    Of<&MeasuredLink::latency_seconds>("latency_seconds"),
    Of<&MeasuredLink::measured_micros>("measured_micros"),
};

}  // namespace

absl::Status PutLink(Database& database, const std::string& device_key, const MeasuredLink& link) {
  auto row =
      database.Prepare(absl::StrCat("INSERT OR REPLACE INTO device_links (device_key, ",
                                    ColumnNames(kColumns), ") VALUES (?", MoreMarks(kColumns), ")")
                           .c_str());
  row.BindText(device_key);
  BindRecord(kColumns, link, row);
  return row.Run();
}

absl::StatusOr<std::optional<MeasuredLink>> GetLink(Database& database,
                                                    const std::string& device_key) {
  auto row = database.Prepare(
      absl::StrCat("SELECT ", ColumnNames(kColumns), " FROM device_links WHERE device_key=?")
          .c_str());
  BLOCKSWAP_ASSIGN_OR_RETURN(const bool found, row.BindText(device_key).Step());
  if (!found) return std::optional<MeasuredLink>();
  return std::optional<MeasuredLink>(ReadRecord(kColumns, row));
}

}  // namespace blockswap::server
