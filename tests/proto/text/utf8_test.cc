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

// Row 39 of the fault list: names, captions and what a worker prints.
TEST(Utf8Test, PrintableTextCannotTurnTheDirectionOrBreakTheLine) {
  EXPECT_EQ(ToPrintable("a\xe2\x80\xaetxt.exe\xe2\x80\xacz"), "atxt.exez");
  EXPECT_EQ(ToPrintable("a\xe2\x81\xa6z\xe2\x80\xa8\xd8\x9cy"), "azy");
  EXPECT_EQ(ToPrintable("\xe2\x80\x93 \xe2\x82\xac"), "\xe2\x80\x93 \xe2\x82\xac");
}

TEST(Utf8Test, OneLineHoldsAnyTextAndTellsWhatItWas) {
  EXPECT_EQ(ToOneLine("job a\n[error] fake\r\x1b[2J\t\\"),
            "job a\\n[error] fake\\x0d\\x1b[2J\\t\\\\");
  EXPECT_EQ(ToOneLine("\xe2\x80\xae\xc2\x9b\xff"), "\\u202e\\u009b?");
  EXPECT_EQ(ToOneLine("gr\xc3\xbc\xc3\x9f"), "gr\xc3\xbc\xc3\x9f");
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
