// SPDX-License-Identifier: Apache-2.0
// Each verb: the call it makes, what it asks first, and every notation of what it prints.
#include <sys/wait.h>
#include <yaml-cpp/yaml.h>

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/cli/command_line.h"
#include "client/cli/exit_code.h"
#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "tests/client/cli/cli_fixture.h"

namespace blockswap::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using testing::FakeService;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class VerbsTest : public CliFixture {
 protected:
  void SetUp() override {
    CliFixture::SetUp();
    service_->AddJob("digits-1", v1::JOB_STATE_RUNNING);
    auto* attempt = service_->attempts.add_attempts();
    attempt->set_name("jobs/digits-1/attempts/1");
    attempt->set_number(1);
    attempt->set_device("gpu0");
    auto* checkpoint = service_->checkpoints.add_checkpoints();
    checkpoint->set_name("jobs/digits-1/checkpoints/200");
    checkpoint->set_step(200);
    checkpoint->set_bytes(3 << 20);
    auto* event = service_->events.add_events();
    event->set_sequence(7);
    event->set_job("jobs/digits-1");
    event->set_type(v1::JobEvent::TYPE_CREATED);
    auto* each = service_->templates.add_templates();
    each->set_name("templates/style");
    each->add_allowed_overrides("dataset.config");
    service_->queue.set_name("queues/default");
    service_->queue.set_queued_jobs(3);
    auto* setting = service_->config.add_settings();
    setting->set_key("log_level");
    setting->set_value("yes");  // text that YAML would take for something else
    setting->set_origin(v1::ConfigSetting::ORIGIN_FILE);
    service_->check.set_ok(true);
    auto* token = service_->tokens.add_tokens();
    token->set_name("tokens/7");
    token->set_display_name("ci");
    token->set_role("viewer");
  }
};

TEST_F(VerbsTest, OneCallForOneJob) {
  const std::pair<const char*, const char*> verbs[] = {{"suspend", "SuspendJob"},
                                                       {"resume", "ResumeJob"},
                                                       {"checkpoint", "CheckpointJob"},
                                                       {"sample", "SampleJob"}};
  for (const auto& [verb, call] : verbs) {
    const Result result = Run({verb, "digits"});
    EXPECT_EQ(result.code, kOk) << verb << result.err;
    EXPECT_EQ(result.out, "digits-1 RUNNING\n");
    EXPECT_EQ(service_->calls.back(), absl::StrCat(call, " name: \"jobs/digits-1\""));
    EXPECT_EQ(Run({verb, "other"}).code, kNotFound) << verb;
    service_->failures = {grpc::Status::OK,
                          FakeService::Error(grpc::StatusCode::FAILED_PRECONDITION,
                                             "the job is not running", "INVALID_STATE")};
    const Result refused = Run({verb, "digits-1"});
    EXPECT_EQ(refused.code, kConflict) << verb;
    EXPECT_THAT(refused.err, HasSubstr("[INVALID_STATE]"));
  }
}

TEST_F(VerbsTest, RetryMakesANewJobWithOverridesAndTheirMask) {
  const Result result = Run({"retry", "digits-1", "--id", "again", "--from", "none", "--set",
                             "memory.vram_budget=8GiB", "--set", "labels.team=vision"});
  EXPECT_EQ(result.code, kOk) << result.err;
  EXPECT_EQ(result.out, "submitted again, again digits-1\n");
  EXPECT_THAT(service_->calls.back(), HasSubstr("from_checkpoint: \"none\""));
  EXPECT_THAT(service_->calls.back(), HasSubstr("vram_budget: \"8GiB\""));
  EXPECT_THAT(service_->calls.back(), HasSubstr("paths: \"memory.vram_budget\" paths: \"labels\""));
  EXPECT_THAT(service_->calls.back(), HasSubstr("request_id: \""));
  EXPECT_EQ(Run({"retry", "digits-1", "-q"}).out, "made-2\n");
  const Result wrong = Run({"retry", "digits-1", "--set", "memory.vram_budgt=8GiB"});
  EXPECT_EQ(wrong.code, kError);
  EXPECT_THAT(wrong.err, HasSubstr("vram_budget"));
}

TEST_F(VerbsTest, WhatIsLostForGoodIsAskedForFirst) {
  const std::vector<std::vector<std::string>> commands = {
      {"delete", "digits-1"},
      {"checkpoints", "delete", "digits-1", "200"},
      {"token", "revoke", "7"}};
  for (const std::vector<std::string>& words : commands) {
    service_->calls.clear();
    const Result nobody = Run(words);
    EXPECT_EQ(nobody.code, kError);
    EXPECT_THAT(nobody.err, HasSubstr("--yes"));
    EXPECT_EQ(Run(words, "n\n").code, kError);
    EXPECT_EQ(Run(words, "").code, kError);
    EXPECT_THAT(service_->calls, IsEmpty()) << words[0];
    const Result agreed = Run(words, "y\n");
    EXPECT_EQ(agreed.code, kOk) << agreed.err;
    EXPECT_THAT(agreed.err, HasSubstr("[y/N]"));
    std::vector<std::string> sure = words;
    sure.push_back("-y");
    EXPECT_EQ(Run(sure).code, kOk);
    EXPECT_EQ(service_->calls.size(), 2u);
  }
}

TEST_F(VerbsTest, DeleteLeavesOutputsUnlessAsked) {
  Run({"delete", "digits-1", "-y", "--etag", "e1"});
  EXPECT_THAT(service_->calls.back(), HasSubstr("etag: \"e1\""));
  EXPECT_THAT(service_->calls.back(), Not(HasSubstr("delete_outputs")));
  Run({"delete", "digits-1", "-y", "--outputs"});
  EXPECT_THAT(service_->calls.back(), HasSubstr("delete_outputs: true"));
}

TEST_F(VerbsTest, OperatorsDrainAndPauseWithAReason) {
  EXPECT_EQ(Run({"devices", "drain", "gpu0", "--reason", "hot"}).out, "gpu0 DRAINED\n");
  EXPECT_EQ(service_->calls.back(), "DrainDevice name: \"devices/gpu0\" reason: \"hot\"");
  EXPECT_EQ(Run({"devices", "undrain", "devices/gpu0"}).out, "gpu0 HEALTHY\n");
  EXPECT_THAT(Run({"queue", "pause", "--reason", "upgrade"}).out, HasSubstr("default"));
  EXPECT_EQ(service_->calls.back(), "PauseQueue reason: \"upgrade\"");
  Run({"queue", "resume"});
  EXPECT_EQ(service_->calls.back(), "ResumeQueue ");
  EXPECT_THAT(Run({"queue"}).out, HasSubstr("OPEN"));
}

TEST_F(VerbsTest, TheServersOwnAffairs) {
  EXPECT_EQ(Run({"server", "backup"}).out, "/state/backups/jobs-1.db\n");
  EXPECT_EQ(Run({"server", "check"}).code, kOk);
  service_->check.set_ok(false);
  service_->check.add_problems("row 3 is missing");
  const Result damaged = Run({"server", "check"});
  EXPECT_EQ(damaged.code, kError);
  EXPECT_THAT(damaged.out, HasSubstr("row 3 is missing"));
  EXPECT_THAT(Run({"server", "config"}).out, HasSubstr("FILE"));
  const Result reload = Run({"server", "reload"});
  EXPECT_EQ(reload.out, "changed: log_level\n");
  EXPECT_THAT(reload.err, HasSubstr("after a restart: socket"));
  EXPECT_EQ(Run({"server", "health"}).code, kUnavailable) << "the fake accepts nothing";
}

TEST_F(VerbsTest, TopShowsDevicesAndActiveJobsOnce) {
  const Result result = Run({"top", "--once"});
  EXPECT_EQ(result.code, kOk) << result.err;
  EXPECT_THAT(result.out, HasSubstr("DEVICE"));
  EXPECT_THAT(result.out, HasSubstr("digits-1"));
  EXPECT_THAT(result.out, Not(HasSubstr("\033")));
}

// Every verb that reads, in every notation.
TEST_F(VerbsTest, ReadVerbsSpeakEveryNotation) {
  const std::vector<std::vector<std::string>> verbs = {{"list"},
                                                       {"get", "digits-1"},
                                                       {"describe", "digits-1"},
                                                       {"attempts", "digits-1"},
                                                       {"events", "digits-1"},
                                                       {"checkpoints", "list", "digits-1"},
                                                       {"checkpoints", "get", "digits-1", "200"},
                                                       {"templates"},
                                                       {"metrics", "digits-1"},
                                                       {"devices"},
                                                       {"queue"},
                                                       {"server", "info"},
                                                       {"server", "config"},
                                                       {"server", "check"},
                                                       {"token", "list"},
                                                       {"context", "list"},
                                                       {"config", "view"},
                                                       {"plan", file_},
                                                       {"validate", file_}};
  for (const std::vector<std::string>& verb : verbs) {
    const std::string name = absl::StrJoin(verb, " ");
    const auto run = [&](const char* format) {
      std::vector<std::string> words = verb;
      words.insert(words.end(), {"-o", format});
      const Result result = Run(words);
      EXPECT_EQ(result.code, kOk) << name << " -o " << format << ": " << result.err;
      return result.out;
    };
    const nlohmann::json json = nlohmann::json::parse(run("json"), nullptr, false);
    EXPECT_TRUE(json.is_object()) << name;
    for (const absl::string_view line : absl::StrSplit(run("jsonl"), '\n', absl::SkipEmpty())) {
      EXPECT_TRUE(nlohmann::json::accept(line.begin(), line.end())) << name;
    }
    EXPECT_TRUE(YAML::Load(run("yaml")).IsMap()) << name;
    EXPECT_EQ(YAML::Load(run("yaml")).size(), json.size()) << name;
    EXPECT_FALSE(run("table").empty() && name != "metrics digits-1") << name;
    EXPECT_GE(run("wide").size(), run("table").size()) << name;
  }
}

TEST_F(VerbsTest, YamlKeepsTextText) {
  const YAML::Node setting = YAML::Load(Run({"server", "config", "-o", "yaml"}).out)["settings"][0];
  EXPECT_EQ(setting["value"].Tag(), "!") << "quoted";
  EXPECT_EQ(setting["value"].as<std::string>(), "yes");
}

TEST_F(VerbsTest, NothingIsAnEmptyArrayAndSuccess) {
  service_->checkpoints.clear_checkpoints();
  const Result result = Run({"checkpoints", "list", "digits-1", "-o", "json"});
  EXPECT_EQ(result.code, kOk);
  EXPECT_TRUE(nlohmann::json::parse(result.out)["checkpoints"].empty());
  EXPECT_EQ(Run({"checkpoints", "list", "digits-1", "-o", "name"}).out, "");
}

TEST_F(VerbsTest, ColumnsAreChosenByName) {
  EXPECT_EQ(Run({"list", "--columns", "state,job"}).out, "STATE    JOB\nRUNNING  digits-1\n");
  const Result wrong = Run({"list", "--columns", "stat"});
  EXPECT_EQ(wrong.code, kUsage);
  EXPECT_THAT(wrong.err, HasSubstr("did you mean 'STATE'?"));
  EXPECT_THAT(Run({"list", "-o", "wide"}).out, HasSubstr("PRIORITY"));
  EXPECT_THAT(Run({"list"}).out, Not(HasSubstr("PRIORITY")));
}

TEST_F(VerbsTest, WrongWordsAreUsageWithASuggestion) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"lst"}, "did you mean 'list'?"},
      {{"checkpoints", "lst", "digits-1"}, "did you mean 'list'?"},
      {{"logs", "digits-1", "--folow"}, "did you mean '--follow'?"},
      {{"get", "digits-1", "--outputt", "json"}, "did you mean '--output'?"}};
  for (const auto& [words, expected] : cases) {
    const Result result = Run(words);
    EXPECT_EQ(result.code, kUsage);
    EXPECT_THAT(result.err, HasSubstr(expected));
    EXPECT_THAT(result.out, IsEmpty());
  }
}

void AllCommands(const CLI::App& app, const std::string& above, std::vector<std::string>* names) {
  for (const CLI::App* command : CommandsOf(app)) {
    const std::string name =
        above.empty() ? command->get_name() : absl::StrCat(above, " ", command->get_name());
    names->push_back(name);
    AllCommands(*command, name, names);
  }
}

TEST_F(VerbsTest, EveryCommandIsInTheManualAndInEveryCompletion) {
  RawArguments raw;
  std::vector<std::string> names;
  AllCommands(*MakeCommandLine(&raw), "", &names);
  for (const char* known :
       {"checkpoints delete", "token create", "token list", "token revoke", "context list",
        "context use", "context add", "context remove", "config view"}) {
    EXPECT_THAT(names, Contains(known));
  }
  const std::string manual = Run({"manual"}).out;
  for (const std::string& name : names) {
    EXPECT_THAT(manual, HasSubstr(absl::StrCat(".SS ", name, "\n")));
    for (const char* shell : {"bash", "zsh", "fish"}) {
      EXPECT_THAT(Run({"completion", shell}).out, HasSubstr(name.substr(name.rfind(' ') + 1)))
          << shell;
    }
  }
}

// What the shell itself makes of the script, with the program and the server at hand.
TEST_F(VerbsTest, BashCompletesCommandsOptionsAndJobs) {
  const char* bin = std::getenv("BLOCKSWAP_BIN_DIR");
  ASSERT_NE(bin, nullptr);
  const auto complete = [&](const std::string& words) {
    const std::string script = absl::StrCat(
        "export PATH=", bin, ":$PATH BLOCKSWAP_SERVER=", service_->target(),
        "; source <(blockswap completion bash); COMP_WORDS=(", words,
        "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _blockswap; echo \"${COMPREPLY[*]}\"");
    FILE* pipe = popen(absl::StrCat("bash -c '", script, "'").c_str(), "r");
    EXPECT_NE(pipe, nullptr);
    char buffer[4096] = {};
    const size_t size = fread(buffer, 1, sizeof(buffer) - 1, pipe);
    EXPECT_EQ(pclose(pipe), 0);
    return std::string(buffer, size);
  };
  EXPECT_EQ(complete("blockswap susp"), "suspend\n");
  EXPECT_EQ(complete("blockswap checkpoints del"), "delete\n");
  EXPECT_EQ(complete("blockswap logs --fol"), "--follow\n");
  EXPECT_EQ(complete("blockswap get dig"), "digits-1\n");
}

}  // namespace
}  // namespace blockswap::cli
