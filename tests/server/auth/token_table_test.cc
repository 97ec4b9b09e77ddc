// SPDX-License-Identifier: Apache-2.0
#include "server/auth/token_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "server/auth/authenticator.h"
#include "server/base/random_text.h"
#include "server/base/reason.h"
#include "tests/server/testing/temporary_directory.h"

namespace blockswap::server {
namespace {

constexpr int64_t kSecond = 1000000;

class TokenTableTest : public ::testing::Test {
 protected:
  void SetUp() override { Open(); }
  void Open() {
    table_.reset();
    store_.reset();
    store_ = *JobStore::Open(path());
    table_ = *TokenTable::Load(*store_, [this] { return now_; });
  }
  std::string path() const { return directory_.path() + "/jobs.db"; }
  TokenTable::Created Make(const std::string& name, const std::string& role = "submitter",
                           const std::string& tenant = "vision", int64_t expire = 0) {
    auto created = table_->Create(name, role, tenant, expire);
    EXPECT_TRUE(created.ok()) << created.status();
    return created.value_or(TokenTable::Created{});
  }

  int64_t now_ = int64_t{1000} * kSecond;
  TemporaryDirectory directory_;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<TokenTable> table_;
};

TEST_F(TokenTableTest, TokenOpensWithItsRoleAndTenantAlsoAfterARestart) {
  const std::string token = Make("ci").token;
  for (int i = 0; i < 2; ++i) {
    const auto identity = table_->Find(token);
    ASSERT_TRUE(identity.ok()) << identity.status();
    EXPECT_EQ(identity->name, "ci");
    EXPECT_EQ(identity->role, Role::kSubmitter);
    EXPECT_EQ(identity->tenant, "vision");
    Open();
  }
}

TEST_F(TokenTableTest, TokensAre256RandomBitsAndNeverInTheStore) {
  const std::string first = Make("a").token, second = Make("b").token;
  EXPECT_EQ(first.size(), 4u + 43u);
  EXPECT_NE(first, second);
  table_.reset();
  store_.reset();
  for (const char* suffix : {"", "-wal"}) {
    std::ifstream file(path() + suffix, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    EXPECT_EQ(bytes.find(first), std::string::npos);
    EXPECT_EQ(bytes.find(first.substr(4)), std::string::npos);
  }
}

TEST_F(TokenTableTest, EveryChangedCharacterIsAnotherToken) {
  const std::string token = Make("ci").token;
  for (size_t i = 0; i < token.size(); ++i) {
    std::string changed = token;
    changed[i] = changed[i] == 'A' ? 'B' : 'A';
    const auto found = table_->Find(changed);
    ASSERT_FALSE(found.ok()) << i;
    EXPECT_EQ(ReasonOf(found.status()), "TOKEN_INVALID");
    EXPECT_EQ(found.status().message().find(token), std::string::npos);
  }
  for (const char* other : {"", "bst_", "x"}) EXPECT_FALSE(table_->Find(other).ok());
  EXPECT_FALSE(table_->Find(Sha256(token)).ok());
}

// Row 26 of the fault list: clocks of two machines may differ by a minute.
TEST_F(TokenTableTest, ExpiryToleratesAMinute) {
  const TokenTable::Created created = Make("short", "viewer", "vision", now_ + 10 * kSecond);
  const int64_t end = created.record.expire_micros;
  now_ = end + 60 * kSecond;
  EXPECT_TRUE(table_->Find(created.token).ok());
  EXPECT_TRUE(table_->IsValid(created.record.id));
  now_ += 1;
  EXPECT_EQ(ReasonOf(table_->Find(created.token).status()), "TOKEN_EXPIRED");
  EXPECT_FALSE(table_->IsValid(created.record.id));
}

TEST_F(TokenTableTest, RevokedTokenIsUnknownForGood) {
  const TokenTable::Created created = Make("ci");
  ASSERT_TRUE(table_->Revoke(created.record.id).ok());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(ReasonOf(table_->Find(created.token).status()), "TOKEN_INVALID");
    EXPECT_FALSE(table_->IsValid(created.record.id));
    Open();
  }
  EXPECT_EQ(ReasonOf(table_->Revoke(999).status()), "TOKEN_NOT_FOUND");
}

TEST_F(TokenTableTest, NameIsFreeAgainOnceItsTokenIsRevoked) {
  const TokenTable::Created created = Make("ci");
  EXPECT_EQ(ReasonOf(table_->Create("ci", "viewer", "vision", 0).status()), "TOKEN_EXISTS");
  ASSERT_TRUE(table_->Revoke(created.record.id).ok());
  EXPECT_NE(Make("ci").token, created.token);
}

TEST_F(TokenTableTest, LastUseIsKeptToTheMinute) {
  const std::string token = Make("ci").token;
  EXPECT_EQ(table_->List()[0].last_used_micros, 0);
  const int64_t first = now_;
  ASSERT_TRUE(table_->Find(token).ok());
  now_ += 59 * kSecond;
  ASSERT_TRUE(table_->Find(token).ok());
  EXPECT_EQ(table_->List()[0].last_used_micros, first);
  now_ += kSecond;
  ASSERT_TRUE(table_->Find(token).ok());
  Open();
  EXPECT_EQ(table_->List()[0].last_used_micros, first + 60 * kSecond);
}

TEST_F(TokenTableTest, WrongWordsAreRefusedByName) {
  struct Case {
    const char *name, *role, *tenant;
    int64_t expire;
    const char* field;
  };
  const Case cases[] = {{"", "viewer", "a", 0, "name"},
                        {"two words", "viewer", "a", 0, "name"},
                        {"line\nbreak", "viewer", "a", 0, "name"},
                        {"ok", "root", "a", 0, "role"},
                        {"ok", "none", "a", 0, "role"},
                        {"ok", "viewer", "", 0, "tenant"},
                        {"ok", "viewer", "../b", 0, "tenant"},
                        {"ok", "viewer", "A", 0, "tenant"},
                        {"ok", "submitter", "*", 0, "tenant"},
                        {"ok", "viewer", "a", 1, "expire_time"}};
  for (const Case& wrong : cases) {
    const auto made = table_->Create(wrong.name, wrong.role, wrong.tenant, wrong.expire);
    ASSERT_TRUE(absl::IsInvalidArgument(made.status())) << wrong.field << made.status();
    EXPECT_THAT(std::string(made.status().message()), ::testing::StartsWith(wrong.field));
  }
  EXPECT_TRUE(table_->Create("all", "viewer", "*", 0).ok());
}

TEST_F(TokenTableTest, TokenNarrowsTheUnixSocketAndABadOneIsNotOverlooked) {
  const Authenticator authenticator(*table_, {});
  Credentials credentials;
  credentials.is_unix = true;
  EXPECT_EQ(authenticator.Identify(credentials)->role, Role::kAdmin);
  credentials.authorization = absl::StrCat("Bearer ", Make("ci").token);
  EXPECT_EQ(authenticator.Identify(credentials)->role, Role::kSubmitter);
  credentials.authorization = "Bearer bst_wrong";
  EXPECT_EQ(ReasonOf(authenticator.Identify(credentials).status()), "TOKEN_INVALID");
  credentials.authorization = "Basic YTpi";
  EXPECT_EQ(ReasonOf(authenticator.Identify(credentials).status()), "TOKEN_INVALID");
}

TEST_F(TokenTableTest, WithoutTokenOrSocketNobodyComesIn) {
  const Authenticator authenticator(*table_, {});
  EXPECT_EQ(ReasonOf(authenticator.Identify(Credentials{}).status()), "TOKEN_MISSING");
}

TEST_F(TokenTableTest, CertificateNamesBecomeIdentities) {
  const auto identities =
      ParseClientIdentities({"spiffe://site/ci=submitter:vision", "ops.example=operator"});
  ASSERT_TRUE(identities.ok()) << identities.status();
  const Authenticator authenticator(*table_, *identities);
  Credentials credentials;
  credentials.certificate_names = {"spiffe://site/ci", "other"};
  EXPECT_EQ(authenticator.Identify(credentials)->tenant, "vision");
  EXPECT_EQ(authenticator.Identify(credentials)->role, Role::kSubmitter);
  credentials.certificate_names = {"ops.example"};
  EXPECT_EQ(authenticator.Identify(credentials)->role, Role::kOperator);
  credentials.certificate_names = {"spiffe://site/other"};
  EXPECT_EQ(ReasonOf(authenticator.Identify(credentials).status()), "CERTIFICATE_UNKNOWN");
}

TEST(ClientIdentitiesTest, WrongEntriesAreNamed) {
  for (const char* wrong :
       {"", "name", "=viewer", "a=root", "a=viewer:B", "a=submitter:*", "a=viewer:b:c", "a="}) {
    const auto parsed = ParseClientIdentities({wrong});
    ASSERT_FALSE(parsed.ok()) << wrong;
    EXPECT_THAT(std::string(parsed.status().message()), ::testing::HasSubstr(wrong));
  }
}

}  // namespace
}  // namespace blockswap::server
