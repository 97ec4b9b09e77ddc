// SPDX-License-Identifier: Apache-2.0
// Runs commands in the test's own process against a fake server.
#ifndef BLOCKSWAP_TESTS_CLIENT_CLI_CLI_FIXTURE_H_
#define BLOCKSWAP_TESTS_CLIENT_CLI_CLI_FIXTURE_H_

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "client/cli/cli.h"
#include "client/cli/session.h"
#include "gtest/gtest.h"
#include "tests/fakes/fake_service.h"

namespace blockswap::cli {

struct Result {
  int code = -1;
  std::string out, err;
};

// Owns: a temporary directory with the server's socket and job.yaml.
class CliFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/blockswap-cli-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    directory_ = name;
    service_ = std::make_unique<testing::FakeService>(directory_);
    variables_.server = service_->target();
    service_->plan.set_text("6 blocks, 4 streamed");
    file_ = directory_ + "/job.yaml";
    WriteFile("name: digits\ntraining: {max_steps: 300}\n");
  }
  void TearDown() override {
    service_.reset();
    std::filesystem::remove_all(directory_);
  }

  void WriteFile(const std::string& text) const { std::ofstream(file_) << text; }

  // `answers`: what a person at the terminal types; null: there is no terminal.
  Result Run(const std::vector<std::string>& words, const char* answers = nullptr) const {
    std::ostringstream out, err;
    std::istringstream in(answers == nullptr ? "" : answers);
    Surroundings surroundings;
    surroundings.out = &out;
    surroundings.err = &err;
    if (answers != nullptr) surroundings.in = &in;
    surroundings.variables = variables_;
    surroundings.contexts_file = directory_ + "/config/blockswap/contexts.yaml";
    surroundings.handles_interrupts = false;
    Result result;
    result.code = RunCli(words, surroundings);
    result.out = out.str();
    result.err = err.str();
    return result;
  }

  std::string directory_, file_;
  Endpoint variables_;  // BLOCKSWAP_...; the server is service_
  std::unique_ptr<testing::FakeService> service_;
};

}  // namespace blockswap::cli

#endif  // BLOCKSWAP_TESTS_CLIENT_CLI_CLI_FIXTURE_H_
