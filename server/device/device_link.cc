// SPDX-License-Identifier: Apache-2.0
#include "server/device/device_link.h"

#include <array>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace blockswap::server {
namespace {

// Payload of one lane and direction, PCIe 1 to 6, before packet overhead.
constexpr std::array<double, 7> kLaneBytesPerSecond = {0,       0.25e9,  0.5e9,  0.985e9,
                                                       1.969e9, 3.938e9, 7.563e9};
// Healthy links reach 0.77 (PCIe 3 x16) to 0.90 (PCIe 5 x16) of that; see facts on links.
constexpr double kHealthyShare = 0.6;

}  // namespace

absl::StatusOr<MeasuredLink> ParseLinkTest(const std::string& json) {
  const auto report = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  MeasuredLink link;
  const std::array<std::pair<const char*, double*>, 7> fields = {{
      {"h2d_bytes_per_second", &link.h2d},
      {"d2h_bytes_per_second", &link.d2h},
      {"duplex_h2d_bytes_per_second", &link.duplex_h2d},
      {"duplex_d2h_bytes_per_second", &link.duplex_d2h},
      {"pageable_bytes_per_second", &link.pageable},
      {"duplex_factor", &link.duplex_factor},
      {"latency_seconds", &link.latency_seconds},
  }};
  for (const auto& [name, value] : fields) {
    if (!report.is_object() || !report.contains(name) || !report[name].is_number() ||
        report[name].get<double>() <= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("the link test's report has no positive number ", name));
    }
    *value = report[name].get<double>();
  }
  return link;
}

std::string LinkWarning(const NegotiatedLink& negotiated, const MeasuredLink& measured, bool busy) {
  if (negotiated.width > 0 && negotiated.width < negotiated.max_width) {
    return absl::StrFormat(
        "the bus runs with %d of %d lanes: reseat the card, or look for a shared slot",
        negotiated.width, negotiated.max_width);
  }
  if (busy && negotiated.generation > 0 && negotiated.generation < negotiated.max_generation) {
    return absl::StrFormat("the bus runs as PCIe %d though both ends know PCIe %d",
                           negotiated.generation, negotiated.max_generation);
  }
  const int generation = negotiated.max_generation;
  if (generation < 1 || generation >= static_cast<int>(kLaneBytesPerSecond.size()) ||
      negotiated.width < 1 || measured.h2d <= 0) {
    return "";
  }
  const double carries = kLaneBytesPerSecond[static_cast<size_t>(generation)] * negotiated.width;
  if (measured.h2d >= kHealthyShare * carries) return "";
  return absl::StrFormat("copies to the device reach %.1f GB/s, PCIe %d with %d lanes carries %.1f",
                         measured.h2d / 1e9, generation, negotiated.width, carries / 1e9);
}

}  // namespace blockswap::server
