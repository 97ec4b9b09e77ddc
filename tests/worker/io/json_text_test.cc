// SPDX-License-Identifier: Apache-2.0
#include "worker/io/json_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace blockswap::worker {
namespace {

using ::testing::HasSubstr;

TEST(JsonTextTest, ParsesAndRefusesWithoutExceptions) {
  EXPECT_EQ((*ParseJson("{\"a\": [1]}", "x"))["a"][0], 1);
  for (const char* bad : {"", "{", "{\"a\":}", "nope", "{} {}", "\"\xff\""}) {
    EXPECT_THAT(ParseJson(bad, "the file").status().ToString(),
                HasSubstr("the file is not valid JSON"))
        << bad;
  }
}

TEST(JsonTextTest, LimitsNestingButNotBracketsInsideText) {
  EXPECT_TRUE(ParseJson("[[[1]]]", "x", 3).ok());
  EXPECT_THAT(ParseJson("[[[[1]]]]", "x", 3).status().ToString(),
              HasSubstr("nested 4 levels deep"));
  EXPECT_TRUE(ParseJson(R"(["[[[[[[{{{{\"[[[["])", "x", 1).ok());
  EXPECT_FALSE(ParseJson(std::string(10'000'000, '['), "x").ok());
}

TEST(JsonTextTest, QuotesNamesForMessages) {
  EXPECT_EQ(Quoted("a\"b\n\x1b"), "\"a\\\"b\\n\\033\"");
  EXPECT_EQ(Quoted(std::string(1000, 'a')).size(), 205u);
}

}  // namespace
}  // namespace blockswap::worker
