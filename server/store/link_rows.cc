// SPDX-License-Identifier: Apache-2.0
#include "server/store/link_rows.h"

#include "offload/base/status_macros.h"

namespace blockswap::server {

absl::Status PutLink(Database& database, const std::string& device_key, const MeasuredLink& link) {
  auto row = database.Prepare(
      "INSERT OR REPLACE INTO device_links (device_key, h2d, d2h, duplex_h2d, duplex_d2h, "
      "pageable, duplex_factor, latency_seconds, measured_micros) VALUES (?,?,?,?,?,?,?,?,?)");
  return row.BindText(device_key)
      .Bind(link.h2d)
      .Bind(link.d2h)
      .Bind(link.duplex_h2d)
      .Bind(link.duplex_d2h)
      .Bind(link.pageable)
      .Bind(link.duplex_factor)
      .Bind(link.latency_seconds)
      .Bind(link.measured_micros)
      .Run();
}

absl::StatusOr<std::optional<MeasuredLink>> GetLink(Database& database,
                                                    const std::string& device_key) {
  auto row = database.Prepare(
      "SELECT h2d, d2h, duplex_h2d, duplex_d2h, pageable, duplex_factor, latency_seconds, "
      "measured_micros FROM device_links WHERE device_key=?");
  BLOCKSWAP_ASSIGN_OR_RETURN(const bool found, row.BindText(device_key).Step());
  std::optional<MeasuredLink> link;
  if (!found) return link;
  link.emplace();
  link->h2d = row.Real(0);
  link->d2h = row.Real(1);
  link->duplex_h2d = row.Real(2);
  link->duplex_d2h = row.Real(3);
  link->pageable = row.Real(4);
  link->duplex_factor = row.Real(5);
  link->latency_seconds = row.Real(6);
  link->measured_micros = row.Int(7);
  return link;
}

}  // namespace blockswap::server
