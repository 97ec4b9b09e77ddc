// SPDX-License-Identifier: Apache-2.0
#include "worker/data/item_faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace blockswap::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ItemFaultsTest, MakesOneMessageOfManyItems) {
  ItemFaults faults;
  for (int i = 0; i < 1000; ++i) faults.Add(ItemFault::kNoTextCache, absl::StrCat("i", i));
  std::vector<std::string> errors, warnings;
  faults.Report(MissingPolicy::kError, &errors, &warnings);
  EXPECT_THAT(errors, ElementsAre("1000 items without a text cache: i0; i1; i2; ..."));
  EXPECT_THAT(warnings, IsEmpty());
}

TEST(ItemFaultsTest, SkipsOnlyWhatThePolicyCovers) {
  for (const ItemFault fault :
       {ItemFault::kNoLatentCache, ItemFault::kNoCaption, ItemFault::kTwoSizes,
        ItemFault::kUnreadable, ItemFault::kOtherArchitecture, ItemFault::kControls}) {
    ItemFaults faults;
    faults.Add(fault, "x");
    std::vector<std::string> errors, warnings;
    faults.Report(MissingPolicy::kSkip, &errors, &warnings);
    EXPECT_EQ(warnings.size(), FollowsMissingPolicy(fault) ? 1u : 0u);
    EXPECT_EQ(errors.size(), FollowsMissingPolicy(fault) ? 0u : 1u);
  }
}

}  // namespace
}  // namespace blockswap::worker
