// SPDX-License-Identifier: Apache-2.0
#include "proto/text/utf8.h"

#include "gtest/gtest.h"

namespace blockswap::proto {
namespace {

TEST(Utf8Test, ReplacesOnlyBytesThatAreInNoCharacter) {
  EXPECT_EQ(ToValidUtf8("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"),
            "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_EQ(ToValidUtf8("a\xff"
                        "b\xc3"),
            "a?b?");
  EXPECT_EQ(ToValidUtf8("\xc0\xaf"), "??");            // overlong
  EXPECT_EQ(ToValidUtf8("\xed\xa0\x80"), "???");       // surrogate
  EXPECT_EQ(ToValidUtf8("\xf4\x90\x80\x80"), "????");  // beyond U+10FFFF
}

TEST(Utf8Test, PrintableTextCannotSteerATerminal) {
  EXPECT_EQ(ToPrintable("a\x1b[31mred\x07\n\tb\x7f"), "a[31mred\n\tb");
  EXPECT_EQ(ToPrintable("x\xc2\x9by\xc2\xa0z"), "xy\xc2\xa0z");
}

TEST(Utf8Test, ShortensAtACharacter) {
  EXPECT_EQ(Shorten("abc", 3), "abc");
  EXPECT_EQ(Shorten("abcd", 3), "abc...");
  EXPECT_EQ(Shorten("a\xe2\x82\xac"
                    "b",
                    2),
            "a...");
}

}  // namespace
}  // namespace blockswap::proto
