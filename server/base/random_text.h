// SPDX-License-Identifier: Apache-2.0
// Random bytes, UUIDs, secrets and short readable suffixes from the operating system's generator,
// and their hashes.
#ifndef BLOCKSWAP_SERVER_BASE_RANDOM_TEXT_H_
#define BLOCKSWAP_SERVER_BASE_RANDOM_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace blockswap::server {

std::string RandomBytes(int count);
// Version 4, lower case with dashes.
std::string RandomUuid();
// Digits and lower-case letters without those that look alike (0 o 1 l i).
std::string RandomSuffix(int length);
std::string ToHex(absl::string_view bytes);

// 32 raw bytes.
std::string Sha256(absl::string_view bytes);
std::string HmacSha256(absl::string_view key, absl::string_view bytes);
// Takes the same time whatever the difference; false when the lengths differ.
bool EqualsInConstantTime(absl::string_view a, absl::string_view b);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_BASE_RANDOM_TEXT_H_
