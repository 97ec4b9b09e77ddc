// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/tokens.h"

#include <gtest/gtest.h>

#include "server/base/reason.h"

namespace blockswap::server {
namespace {

const TokenMaker kMaker("epoch-1", "secret");

TEST(TokensTest, PageTokenComesBackForTheSameScopeOnly) {
  const std::string token = kMaker.PageToken(42, "jobs active");
  EXPECT_EQ(*kMaker.ParsePageToken(token, "jobs active"), 42);
  EXPECT_FALSE(kMaker.ParsePageToken(token, "jobs terminal").ok());
  EXPECT_EQ(*kMaker.ParsePageToken("", "anything"), 0);
}

TEST(TokensTest, ChangedTokensAreRefused) {
  const std::string page = kMaker.PageToken(42, "s");
  const std::string resume = kMaker.ResumeToken(42, "s");
  for (size_t i = 0; i < page.size(); ++i) {
    std::string changed = page;
    changed[i] = changed[i] == 'A' ? 'B' : 'A';
    EXPECT_FALSE(kMaker.ParsePageToken(changed, "s").ok()) << i;
  }
  for (size_t i = 0; i < resume.size(); ++i) {
    std::string changed = resume;
    changed[i] = changed[i] == '1' ? '2' : '1';
    EXPECT_FALSE(kMaker.ParseResumeToken(changed, "s").ok()) << i;
  }
  EXPECT_FALSE(TokenMaker("epoch-1", "other").ParsePageToken(page, "s").ok());
}

TEST(TokensTest, OneKindIsNotTakenForTheOther) {
  EXPECT_FALSE(kMaker.ParsePageToken(kMaker.ResumeToken(1, "s"), "s").ok());
  EXPECT_FALSE(kMaker.ParseResumeToken(kMaker.PageToken(1, "s"), "s").ok());
}

TEST(TokensTest, PageTokenKeepsAnyTextAsItsKey) {
  for (const std::string key : {"", "a.b.c", "17 5 na\xc3\xafve name", "\n"}) {
    const std::string token = kMaker.TextPageToken(key, "s");
    const auto parsed = kMaker.ParseTextPageToken(token, "s");
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, key);
    EXPECT_EQ(ReasonOf(kMaker.ParseTextPageToken(token, "t").status()), "PAGE_TOKEN_INVALID");
  }
}

TEST(TokensTest, TokenOfAnotherStoreHasExpired) {
  const auto parsed =
      kMaker.ParseResumeToken(TokenMaker("epoch-2", "secret2").ResumeToken(7, "s"), "s");
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(ReasonOf(parsed.status()), "RESUME_TOKEN_EXPIRED");
}

}  // namespace
}  // namespace blockswap::server
