// SPDX-License-Identifier: Apache-2.0
// token create, list and revoke, and what a command shows the server.
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/exit_code.h"
#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "tests/client/cli/cli_fixture.h"

namespace blockswap::cli {
namespace {

using ::testing::ElementsAre;
using testing::FakeService;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

class TokensTest : public CliFixture {
 protected:
  std::string Read(const std::string& path) const {
    std::ifstream in(path);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  std::string WriteToken(const std::string& text, mode_t mode = 0600) const {
    const std::string path = directory_ + "/client.token";
    std::ofstream(path) << text;
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    return path;
  }
};

TEST_F(TokensTest, SecretIsOnStandardOutputOnceAndAlone) {
  const int64_t before = absl::ToUnixSeconds(absl::Now());
  const Result result = Run({"token", "create", "--role", "submitter", "--tenant", "vision",
                             "--name", "ci", "--expires", "1h"});
  EXPECT_EQ(result.code, kOk) << result.err;
  EXPECT_EQ(result.out, "bst_made\n");
  EXPECT_THAT(result.err, Not(HasSubstr("bst_")));
  EXPECT_THAT(result.err, HasSubstr("--token-file"));
  const std::string& call = service_->calls.back();
  EXPECT_THAT(call, StartsWith("CreateToken display_name: \"ci\" role: \"submitter\" "
                               "tenant: \"vision\" expire_time { seconds: "));
  const int64_t expires = std::stoll(call.substr(call.find("seconds: ") + 9));
  EXPECT_GE(expires, before + 3600);
  EXPECT_LE(expires, absl::ToUnixSeconds(absl::Now()) + 3600);
}

TEST_F(TokensTest, RoleMustBeSaidAndExist) {
  EXPECT_EQ(Run({"token", "create", "--name", "ci"}).code, kUsage);
  EXPECT_EQ(Run({"token", "create", "--role", "root"}).code, kUsage);
  EXPECT_THAT(service_->calls, IsEmpty());
}

TEST_F(TokensTest, NameIsMadeWhereNoneIsGiven) {
  EXPECT_EQ(Run({"token", "create", "--role", "viewer"}).code, kOk);
  EXPECT_THAT(service_->calls.back(), HasSubstr("display_name: \"viewer-2"));
}

TEST_F(TokensTest, ProgramsGetTokenAndSecret) {
  const auto made =
      nlohmann::json::parse(Run({"token", "create", "--role", "viewer", "-o", "json"}).out);
  EXPECT_EQ(made["secret"], "bst_made");
  EXPECT_EQ(made["token"]["name"], "tokens/7");
}

TEST_F(TokensTest, FileForTheSecretIsNewAndPrivate) {
  const std::string path = directory_ + "/new.token";
  const Result made = Run({"token", "create", "--role", "viewer", "--out", path});
  EXPECT_EQ(made.code, kOk) << made.err;
  EXPECT_THAT(made.out, IsEmpty());
  EXPECT_EQ(Read(path), "bst_made\n");
  struct stat facts {};
  ASSERT_EQ(stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0600u);
  service_->calls.clear();
  EXPECT_EQ(Run({"token", "create", "--role", "viewer", "--out", path}).code, kConflict);
  EXPECT_THAT(service_->calls, IsEmpty()) << "no token is made that cannot be kept";
}

TEST_F(TokensTest, WithoutATokenNoFileIsLeft) {
  const std::string path = directory_ + "/new.token";
  service_->failures = {
      FakeService::Error(grpc::StatusCode::ALREADY_EXISTS, "there is ci", "TOKEN_EXISTS")};
  const Result refused = Run({"token", "create", "--role", "viewer", "--out", path});
  EXPECT_EQ(refused.code, kConflict);
  EXPECT_THAT(refused.err, HasSubstr("[TOKEN_EXISTS]"));
  EXPECT_FALSE(std::filesystem::exists(path));
}

// The first answer may be lost on its way while the token exists.
TEST_F(TokensTest, CreatingIsNotRepeated) {
  service_->failures = {FakeService::Error(grpc::StatusCode::UNAVAILABLE, "going", "STARTING")};
  EXPECT_EQ(Run({"token", "create", "--role", "viewer"}).code, kUnavailable);
  EXPECT_THAT(service_->calls, SizeIs(1));
}

TEST_F(TokensTest, ListTellsWhatIsStillGood) {
  const int64_t now = absl::ToUnixSeconds(absl::Now());
  for (int number = 1; number <= 3; ++number) {
    auto* token = service_->tokens.add_tokens();
    token->set_name(absl::StrCat("tokens/", number));
    token->set_role("viewer");
    token->set_tenant("vision");
    token->set_display_name(absl::StrCat("t", number));
    if (number == 2) token->mutable_expire_time()->set_seconds(now - 60);
    if (number == 3) token->mutable_revoke_time()->set_seconds(now - 60);
  }
  EXPECT_EQ(Run({"token", "list", "--columns", "token,name,tenant,state"}).out,
            "TOKEN  NAME  TENANT  STATE\n"
            "1      t1    vision  VALID\n"
            "2      t2    vision  EXPIRED\n"
            "3      t3    vision  REVOKED\n");
  EXPECT_EQ(Run({"token", "list", "-o", "name"}).out, "1\n2\n3\n");
}

TEST_F(TokensTest, RevokeTakesNumberOrName) {
  EXPECT_THAT(Run({"token", "revoke", "7"}, "y\n").err, HasSubstr("revoked 7 ci"));
  EXPECT_EQ(service_->calls.back(), "RevokeToken name: \"tokens/7\"");
  EXPECT_EQ(Run({"token", "revoke", "ci", "-y"}).code, kOk);
  EXPECT_EQ(service_->calls.back(), "RevokeToken name: \"ci\"");
}

TEST_F(TokensTest, TokenOfTheFileGoesWithEveryCall) {
  const std::string path = WriteToken("bst_mine\n");
  EXPECT_EQ(Run({"token", "list"}).code, kOk);
  EXPECT_EQ(Run({"token", "list", "--token-file", path}).code, kOk);
  variables_.token_file = path;
  EXPECT_EQ(Run({"token", "list"}).code, kOk);
  EXPECT_THAT(service_->authorizations, ElementsAre("", "Bearer bst_mine", "Bearer bst_mine"));
}

TEST_F(TokensTest, UnusableTokenFileEndsTheCommandBeforeAnythingIsSent) {
  const Result open = Run({"token", "list", "--token-file", WriteToken("bst_mine", 0644)});
  EXPECT_EQ(open.code, kError);
  EXPECT_THAT(open.err, HasSubstr("chmod 0600"));
  EXPECT_EQ(Run({"token", "list", "--token-file", directory_ + "/none"}).code, kNotFound);
  EXPECT_THAT(service_->calls, IsEmpty());
}

TEST_F(TokensTest, TcpWithoutATokenSaysWhatIsMissing) {
  const Result result = Run({"list", "--server", "localhost:1"});
  EXPECT_EQ(result.code, kError);
  EXPECT_THAT(result.err, HasSubstr("--token-file or BLOCKSWAP_TOKEN_FILE"));
}

}  // namespace
}  // namespace blockswap::cli
