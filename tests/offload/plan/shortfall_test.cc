// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/shortfall.h"

#include <gtest/gtest.h>

namespace blockswap::offload {
namespace {

TEST(ShortfallTest, ComesBackAsItWasAttachedAndLeavesTheStatusAsItWas) {
  const absl::Status status =
      WithShortfall(absl::FailedPreconditionError("too small"),
                    {"device_memory", int64_t{1} << 40, 12, "this, or\nthat"});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "too small");
  const auto shortfall = ShortfallOf(status);
  ASSERT_TRUE(shortfall.has_value());
  EXPECT_EQ(shortfall->resource, "device_memory");
  EXPECT_EQ(shortfall->needed_bytes, int64_t{1} << 40);
  EXPECT_EQ(shortfall->available_bytes, 12);
  EXPECT_EQ(shortfall->would_fit, "this, or\nthat");
}

TEST(ShortfallTest, OtherErrorsHaveNone) {
  EXPECT_FALSE(ShortfallOf(absl::OkStatus()).has_value());
  EXPECT_FALSE(ShortfallOf(absl::InvalidArgumentError("no")).has_value());
}

}  // namespace
}  // namespace blockswap::offload
