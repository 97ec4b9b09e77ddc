// SPDX-License-Identifier: Apache-2.0
#include "worker/config/field_checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace blockswap::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(FieldCheckerTest, LeavesAWrongOrAbsentValueAtItsDefault) {
  SpecResult result;
  FieldChecker check(&result);
  int whole = 7;
  double real = 0.5;
  check.Whole("w", /*given=*/false, 99, 1, 10, &whole);
  EXPECT_THAT(result.violations, SizeIs(0));
  check.Whole("w", /*given=*/true, 99, 1, 10, &whole);
  check.Real("r", /*given=*/true, NAN, FieldChecker::Bound::kOpen, 0, FieldChecker::Bound::kOpen, 1,
             &real);
  EXPECT_EQ(whole, 7);
  EXPECT_EQ(real, 0.5);
  ASSERT_THAT(result.violations, SizeIs(2));
  EXPECT_EQ(result.violations[0].description, "must be from 1 to 10, is 99");
  EXPECT_EQ(result.violations[1].description, "must be above 0 and below 1, is nan");
  check.Whole("w", /*given=*/true, 10, 1, 10, &whole);
  EXPECT_EQ(whole, 10);
}

TEST(FieldCheckerTest, ReadsByteCounts) {
  SpecResult result;
  FieldChecker check(&result);
  std::optional<int64_t> bytes;
  check.Bytes("b", "auto", &bytes);
  check.Bytes("b", "", &bytes);
  EXPECT_FALSE(bytes.has_value());
  check.Bytes("b", "1.5 GiB", &bytes);
  EXPECT_EQ(bytes, int64_t{3} << 29);
  EXPECT_THAT(result.violations, SizeIs(0));
  check.Bytes("b", "lots\n", &bytes);
  EXPECT_THAT(result.violations[0].description, HasSubstr("\"lots\\n\""))
      << "control bytes are escaped";
}

}  // namespace
}  // namespace blockswap::worker
