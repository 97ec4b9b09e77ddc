// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/request_id.h"

#include <array>
#include <cstdint>
#include <random>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace blockswap::client {

std::string NewRequestId() {
  std::random_device source;
  std::array<char, 16> bytes{};
  for (char& byte : bytes) byte = static_cast<char>(source() & 0xFF);
  bytes[6] = static_cast<char>((bytes[6] & 0x0F) | 0x40);  // version 4
  bytes[8] = static_cast<char>((bytes[8] & 0x3F) | 0x80);  // the variant of RFC 4122
  const std::string hex = absl::BytesToHexString(absl::string_view(bytes.data(), bytes.size()));
  return absl::StrCat(hex.substr(0, 8), "-", hex.substr(8, 4), "-", hex.substr(12, 4), "-",
                      hex.substr(16, 4), "-", hex.substr(20));
}

}  // namespace blockswap::client
