// SPDX-License-Identifier: Apache-2.0
#include "offload/base/byte_size.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "absl/strings/match.h"

namespace blockswap::base {
namespace {

TEST(ParseByteSizeTest, ReadsUnitsPeopleWrite) {
  const struct {
    const char* text;
    int64_t bytes;
  } kCases[] = {{"0", 0},
                {"4096", 4096},
                {"17 B", 17},
                {"12MiB", 12 * kMiB},
                {"12 mib", 12 * kMiB},
                {"1.5GiB", kGiB + kGiB / 2},
                {" 2 TiB ", 2048 * kGiB},
                {"1kB", 1000},
                {"3MB", 3000000},
                {"2GB", 2000000000},
                {"1TB", 1000000000000},
                {".5KiB", 512},
                {"0.0001KiB", 0},
                {"9223372036854775807", std::numeric_limits<int64_t>::max()}};
  for (const auto& test : kCases) {
    const absl::StatusOr<int64_t> bytes = ParseByteSize(test.text);
    ASSERT_TRUE(bytes.ok()) << test.text << ": " << bytes.status();
    EXPECT_EQ(*bytes, test.bytes) << test.text;
  }
}

TEST(ParseByteSizeTest, RefusesEverythingElse) {
  for (const char* text :
       {"", " ", "GiB", "-1", "+1", "1e9", "12 Mi", "12MiBs", "1.2.3", ".", "0x10", "inf", "nan",
        "12 GiB 3", "9223372036854775808", "9000000 TiB", "99999999999999999999999"}) {
    const absl::StatusOr<int64_t> bytes = ParseByteSize(text);
    EXPECT_EQ(bytes.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_TRUE(absl::StrContains(bytes.status().message(), text)) << bytes.status();
  }
}

TEST(FormatByteSizeTest, UsesTheLargestUnitThatIsAtLeastOne) {
  EXPECT_EQ(FormatByteSize(0), "0 B");
  EXPECT_EQ(FormatByteSize(1023), "1023 B");
  EXPECT_EQ(FormatByteSize(1024), "1.0 KiB");
  EXPECT_EQ(FormatByteSize(12 * kMiB), "12.0 MiB");
  EXPECT_EQ(FormatByteSize(3 * kGiB + kGiB / 10), "3.1 GiB");
  EXPECT_EQ(FormatByteSize(-kGiB), "-1.0 GiB");
}

TEST(FormatByteSizeTest, IsReadBackWithinItsRounding) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 1000; ++i) {
    const int64_t bytes = static_cast<int64_t>(random() >> (1 + random() % 62));
    const absl::StatusOr<int64_t> again = ParseByteSize(FormatByteSize(bytes));
    if (bytes >= 1024 * 1024 * kGiB) continue;  // printed in PiB, which is not a unit to write
    ASSERT_TRUE(again.ok()) << bytes << ": " << again.status();
    const double error = static_cast<double>(*again - bytes) / static_cast<double>(bytes + 1);
    EXPECT_LT(error < 0 ? -error : error, 0.06) << bytes;
  }
}

}  // namespace
}  // namespace blockswap::base
