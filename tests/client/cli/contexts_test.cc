// SPDX-License-Identifier: Apache-2.0
// Contexts, their file, and which of flag, environment, context and default has the word.
#include "client/cli/contexts.h"

#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "client/cli/exit_code.h"
#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "tests/client/cli/cli_fixture.h"

namespace blockswap::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class ContextsTest : public CliFixture {
 protected:
  void SetUp() override {
    CliFixture::SetUp();
    variables_.server.clear();
    contexts_ = directory_ + "/config/blockswap/contexts.yaml";
    token_ = directory_ + "/lab.token";
    std::ofstream(token_) << "bst_lab";
    EXPECT_EQ(chmod(token_.c_str(), 0600), 0);
  }
  void AddLab() const {
    const Result added =
        Run({"context", "add", "lab", "--server", service_->target(), "--token-file", token_});
    ASSERT_EQ(added.code, kOk) << added.err;
  }
  void WriteContextsFile(const std::string& text) const {
    std::filesystem::create_directories(directory_ + "/config/blockswap");
    std::ofstream(contexts_) << text;
  }
  // The setting's value and origin as config view tells them.
  std::pair<std::string, std::string> Setting(const std::string& key,
                                              std::vector<std::string> flags = {}) const {
    flags.insert(flags.begin(), {"config", "view", "--origin", "-o", "json"});
    const Result result = Run(flags);
    EXPECT_EQ(result.code, kOk) << result.err;
    const nlohmann::json view = nlohmann::json::parse(result.out);
    for (const auto& each : view["settings"]) {
      if (each["key"] == key)
        return {each["value"].get<std::string>(), each["origin"].get<std::string>()};
    }
    ADD_FAILURE() << "no setting " << key;
    return {};
  }
  mode_t Mode(const std::string& path) const {
    struct stat facts {};
    EXPECT_EQ(stat(path.c_str(), &facts), 0) << path;
    return facts.st_mode & 07777;
  }
  std::string contexts_, token_;
};

TEST_F(ContextsTest, AddedAndUsedIsWhatCommandsTalkTo) {
  AddLab();
  variables_.server = "unix:/nowhere";
  EXPECT_EQ(Run({"token", "list"}).code, kUnavailable);
  variables_.server.clear();
  EXPECT_THAT(Run({"context", "use", "lab"}).err, HasSubstr(service_->target()));
  EXPECT_EQ(Run({"token", "list"}).code, kOk);
  EXPECT_THAT(service_->authorizations, ElementsAre("Bearer bst_lab"));
  EXPECT_EQ(Run({"context", "use", "default"}).code, kOk);
  EXPECT_EQ(Run({"token", "list", "--server", service_->target()}).code, kOk);
  EXPECT_EQ(Run({"token", "list", "--context", "lab"}).code, kOk);
  variables_.context = "lab";
  EXPECT_EQ(Run({"token", "list"}).code, kOk);
  EXPECT_THAT(service_->authorizations,
              ElementsAre("Bearer bst_lab", "", "Bearer bst_lab", "Bearer bst_lab"));
}

TEST_F(ContextsTest, FileIsPrivateAndHoldsNoSecret) {
  AddLab();
  EXPECT_EQ(Mode(contexts_), 0600u);
  EXPECT_EQ(Mode(directory_ + "/config/blockswap"), 0700u);
  std::ifstream in(contexts_);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  EXPECT_THAT(text, HasSubstr(token_));
  EXPECT_THAT(text, Not(HasSubstr("bst_lab")));
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory_ + "/config/blockswap")) {
    EXPECT_EQ(entry.path(), contexts_) << "nothing is left beside it";
    ++files;
  }
  EXPECT_EQ(files, 1u);
}

TEST_F(ContextsTest, FileThatCannotBeReplacedStaysAsItWas) {
  std::filesystem::create_directories(contexts_);  // a directory: rename onto it fails
  const absl::Status written = WriteContexts(Contexts(), contexts_);
  EXPECT_EQ(written.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(written.message()), HasSubstr(contexts_));
  EXPECT_TRUE(std::filesystem::is_empty(contexts_));
  size_t entries = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory_ + "/config/blockswap")) {
    EXPECT_EQ(entry.path(), contexts_);
    ++entries;
  }
  EXPECT_EQ(entries, 1u) << "the temporary file is gone";
}

TEST_F(ContextsTest, FlagComesBeforeEnvironmentBeforeContextBeforeDefault) {
  variables_.server = "unix:/environment";
  EXPECT_EQ(Setting("server"), std::make_pair(std::string("unix:/environment"),
                                              std::string("environment BLOCKSWAP_SERVER")));
  EXPECT_EQ(Setting("server", {"--server", "unix:/flag"}),
            std::make_pair(std::string("unix:/flag"), std::string("flag --server")));
  Contexts contexts;
  contexts.current = "lab";
  contexts.by_name["lab"] = {"", "host:7543", "/lab.token", "/lab.ca", "", ""};
  contexts.by_name["other"] = {"", "other:7543", "", "", "", ""};
  Endpoint none, variables;
  ResolvedEndpoint found = *ResolveEndpoint(none, variables, contexts);
  EXPECT_EQ(found.endpoint.server, "host:7543");
  EXPECT_EQ(found.origins.server, "context lab");
  EXPECT_EQ(found.origins.context, "file");
  EXPECT_EQ(found.origins.tls_cert, "default");
  variables.token_file = "/environment.token";
  found = *ResolveEndpoint(none, variables, contexts);
  EXPECT_EQ(found.endpoint.token_file, "/environment.token");
  EXPECT_EQ(found.origins.tls_ca, "context lab");
  variables.context = "other";
  EXPECT_EQ(ResolveEndpoint(none, variables, contexts)->endpoint.server, "other:7543");
  Endpoint flags;
  flags.context = "default";
  found = *ResolveEndpoint(flags, variables, contexts);
  EXPECT_EQ(found.origins.server, "default");
  EXPECT_THAT(found.endpoint.server, HasSubstr("unix:/"));
}

TEST_F(ContextsTest, AnotherServerGetsNothingOfTheContext) {
  Contexts contexts;
  contexts.current = "lab";
  contexts.by_name["lab"] = {"", "host:7543", "/lab.token", "/lab.ca", "/lab.crt", "/lab.key"};
  Endpoint flags;
  flags.server = "elsewhere:7543";
  const ResolvedEndpoint found = *ResolveEndpoint(flags, Endpoint(), contexts);
  EXPECT_EQ(found.endpoint.token_file, "");
  EXPECT_EQ(found.endpoint.tls_key, "");
  flags.server = "host:7543";
  EXPECT_EQ(ResolveEndpoint(flags, Endpoint(), contexts)->endpoint.token_file, "/lab.token");
}

TEST_F(ContextsTest, ListMarksTheOneInUse) {
  AddLab();
  ASSERT_EQ(Run({"context", "use", "lab"}).code, kOk);
  EXPECT_EQ(Run({"context", "list", "--columns", "current,name"}).out,
            "CURRENT  NAME\n         default\n*        lab\n");
  EXPECT_EQ(Run({"context", "list", "-o", "name"}).out, "default\nlab\n");
  const auto json = nlohmann::json::parse(Run({"context", "list", "-o", "json"}).out);
  EXPECT_EQ(json["contexts"][1]["server"], service_->target());
  EXPECT_EQ(json["contexts"][1]["current"], true);
}

TEST_F(ContextsTest, RemoveGoesBackToTheDefault) {
  AddLab();
  Run({"context", "use", "lab"});
  EXPECT_THAT(Run({"context", "remove", "lab"}).err, HasSubstr("using default"));
  EXPECT_EQ(Run({"context", "list", "-o", "name"}).out, "default\n");
  EXPECT_EQ(Run({"context", "remove", "lab"}).code, kNotFound);
  EXPECT_TRUE(std::filesystem::exists(token_));
}

TEST_F(ContextsTest, WhatCannotBeAContextIsUsage) {
  const std::vector<std::vector<std::string>> wrong = {
      {"lab"},
      {"default", "--server", "host:7543"},
      {"a/b", "--server", "host:7543"},
      {"lab", "--server", "nowhere"},
      {"lab", "--server", "host:7543", "--token-file", "-"}};
  for (std::vector<std::string> words : wrong) {
    words.insert(words.begin(), {"context", "add"});
    EXPECT_EQ(Run(words).code, kUsage) << words[2];
  }
  EXPECT_FALSE(std::filesystem::exists(contexts_));
  AddLab();
  EXPECT_EQ(Run({"context", "add", "lab", "--server", "host:7543"}).code, kConflict);
  EXPECT_EQ(Run({"context", "add", "lab", "--server", "host:7543", "--replace"}).code, kOk);
  EXPECT_EQ(Setting("server", {"--context", "lab"}).first, "host:7543");
}

TEST_F(ContextsTest, UnknownContextNamesTheNearest) {
  AddLab();
  const Result result = Run({"list", "--context", "lap"});
  EXPECT_EQ(result.code, kNotFound);
  EXPECT_THAT(result.err, HasSubstr("did you mean 'lab'?"));
}

TEST_F(ContextsTest, WrongFileIsExplainedWithoutItsSecrets) {
  WriteContextsFile("contexts:\n  lab:\n    server: host:7543\n    token: bst_secret\n");
  const Result secret = Run({"list"});
  EXPECT_EQ(secret.code, kError);
  EXPECT_THAT(secret.err, HasSubstr("line 4: no setting 'token' in a context"));
  EXPECT_THAT(secret.err, Not(HasSubstr("bst_secret")));
  for (const char* text : {"[1]", "current: [lab]", "contexts: {lab: {}}", "contexts: {lab: x}",
                           "contexts: {lab: {server: [a]}}", "a: b: c", "contexts: {a/b: {}}"}) {
    WriteContextsFile(text);
    const Result result = Run({"context", "list"});
    EXPECT_EQ(result.code, kError) << text;
    EXPECT_THAT(result.err, Not(IsEmpty())) << text;
  }
  WriteContextsFile("");
  EXPECT_EQ(Run({"context", "list"}).code, kOk);
}

TEST_F(ContextsTest, OriginIsAColumnWhenAskedFor) {
  EXPECT_THAT(Run({"config", "view"}).out, Not(HasSubstr("FROM")));
  const std::string view = Run({"config", "view", "--origin"}).out;
  EXPECT_THAT(view, HasSubstr("FROM"));
  EXPECT_THAT(view, HasSubstr("default"));
  EXPECT_THAT(Run({"config", "view", "-o", "name"}).out,
              "context\nserver\ntoken_file\ntls_ca\ntls_cert\ntls_key\n");
}

}  // namespace
}  // namespace blockswap::cli
