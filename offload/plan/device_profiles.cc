// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/device_profiles.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace blockswap::offload {
namespace {

constexpr double kGiga = 1e9;
constexpr double kTera = 1e12;
constexpr int64_t kGiB = int64_t{1} << 30;
// The largest context with libraries that was observed, on a 5090 (facts/offload.md 5.6).
constexpr int64_t kContextBytes = 1'700'000'000;

LinkProfile Link(double h2d, double d2h, double pageable, double duplex_h2d, double duplex_d2h) {
  LinkProfile link;
  link.h2d_bytes_per_second = h2d * kGiga;
  link.d2h_bytes_per_second = d2h * kGiga;
  link.pageable_bytes_per_second = pageable * kGiga;
  link.duplex_h2d_bytes_per_second = duplex_h2d * kGiga;
  link.duplex_d2h_bytes_per_second = duplex_d2h * kGiga;
  return link;
}

// facts/offload.md 5.1, PCIe 4 x16. H2D: the least of 23.9-26.4 measured (nvbandwidth#15). D2H: 25
// of an A100 (nvbandwidth#53). Pageable: the least of 18.5-23, a fast desktop (fiddler#7). Both
// ways: the middle of a 4090's 11-16 to the device (nvbandwidth#15), an A100's 25 back
// (nvbandwidth#53).
LinkProfile PcieGen4() { return Link(23.9, 25, 18.5, 13.5, 25); }

// facts/offload.md 5.1, PCIe 5 x16 as 8 x 5090 show it: 56.3 to the device, 57.3 back, 50.9 and
// about 51 at once (open-gpu-kernel-modules#29); pageable 9.6 in 0.8 MB pieces (kekzl/imp#1409).
LinkProfile PcieGen5() { return Link(56.3, 57.3, 9.6, 50.9, 51); }

// facts/offload.md 5.1, H100 and H200 on PCIe 5: expect 55, D2H 52.8 (nvbandwidth#24). Pageable and
// both ways at once: as the same link of a 5090.
LinkProfile PcieGen5Server() { return Link(55, 52.8, 9.6, 50.9, 51); }

// facts/offload.md 5.1, NVLink C2C: the least of 342-346 to the device (nvbandwidth#23), the least
// of 170-295 back (Megatron-LM#6491). The rest was not measured.
LinkProfile NvlinkC2c() { return Link(342, 170, 0, 0, 0); }

std::vector<DeviceProfile> MakeProfiles() {
  // Memory: the makers' sizes. Sustained bf16: the second table of facts/offload.md 5.2.
  return {{"rtx3090", 24 * kGiB, PcieGen4(), 60 * kTera},
          {"rtx4090", 24 * kGiB, PcieGen4(), 130 * kTera},
          {"rtx5090", 32 * kGiB, PcieGen5(), 170 * kTera},
          {"h100", 80'000'000'000, PcieGen5Server(), 600 * kTera},
          {"h200", 141'000'000'000, PcieGen5Server(), 600 * kTera},
          {"gh200", 96'000'000'000, NvlinkC2c(), 600 * kTera}};
}

// Lower case letters and digits alone: "NVIDIA GeForce RTX 4090" holds "rtx4090".
std::string Squeezed(absl::string_view text) {
  std::string squeezed;
  for (const char c : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c))) {
      squeezed += absl::ascii_tolower(static_cast<unsigned char>(c));
    }
  }
  return squeezed;
}

}  // namespace

int64_t DeviceProfile::usable_bytes() const { return vram_bytes - kContextBytes; }

const std::vector<DeviceProfile>& DeviceProfiles() {
  static const auto* const kProfiles = new std::vector<DeviceProfile>(MakeProfiles());
  return *kProfiles;
}

absl::StatusOr<DeviceProfile> FindDeviceProfile(absl::string_view name) {
  std::vector<std::string> names;
  for (const DeviceProfile& profile : DeviceProfiles()) {
    if (profile.name == name) return profile;
    names.push_back(profile.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("no device profile \"", name, "\"; known are ", absl::StrJoin(names, ", ")));
}

const DeviceProfile* ProfileOfCard(absl::string_view driver_name) {
  const std::string name = Squeezed(driver_name);
  const DeviceProfile* best = nullptr;
  for (const DeviceProfile& profile : DeviceProfiles()) {
    // A laptop's card has the name but neither the link nor the speed; a GH200 is no H200.
    if (name.find(profile.name) == std::string::npos || name.find("laptop") != std::string::npos) {
      continue;
    }
    if (best == nullptr || profile.name.size() > best->name.size()) best = &profile;
  }
  return best;
}

PlanRequest RequestOn(const DeviceProfile& profile, PlanRequest request) {
  const double file_rate = request.link.file_bytes_per_second;
  request.device_free_bytes = profile.usable_bytes();
  request.link = profile.link;
  request.link.file_bytes_per_second = file_rate;
  request.compute_flops_per_second = profile.bf16_flops;
  request.other_step_seconds = 0;
  request.copies_need_pinned_memory = true;
  return request;
}

}  // namespace blockswap::offload
