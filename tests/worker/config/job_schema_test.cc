// SPDX-License-Identifier: Apache-2.0
#include "worker/config/job_schema.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "worker/config/spec_validation.h"

namespace blockswap::worker {
namespace {

using Json = nlohmann::json;

std::string FileText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << path;
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

std::string Schema() {
  const auto schema = JobSchema(FileText(std::getenv("BLOCKSWAP_JOB_DESCRIPTORS")));
  EXPECT_TRUE(schema.ok()) << schema.status();
  return schema.value_or("");
}

TEST(JobSchemaTest, ShippedFileIsTheSchemaOfThisBuild) {
  const std::string path =
      std::string(std::getenv("BLOCKSWAP_SOURCE_DIR")) + "/deploy/examples/job.schema.json";
  EXPECT_EQ(FileText(path), Schema())
      << "write it anew: build/release/bin/job_schema " << std::getenv("BLOCKSWAP_JOB_DESCRIPTORS")
      << " > deploy/examples/job.schema.json";
}

TEST(JobSchemaTest, TellsWordsLimitsAndMeaningOfAField) {
  const Json schema = Json::parse(Schema());
  const Json& memory = schema["properties"]["memory"]["properties"];
  EXPECT_EQ(memory["mode"]["enum"], Json::array({"h2d_only", "exchange"}));
  EXPECT_EQ(memory["ring_size"]["minimum"], 1);
  EXPECT_EQ(memory["ring_size"]["maximum"], 1024);
  EXPECT_EQ(memory["checkpointing"]["enum"], Json::array({"auto", "on", "off", true, false}));
  EXPECT_NE(memory["ring_size"]["description"].get<std::string>().find("Default 2"),
            std::string::npos);
  const Json& training = schema["properties"]["training"]["properties"];
  EXPECT_EQ(training["learning_rate"]["exclusiveMinimum"], 0);
  EXPECT_EQ(training["optimizer"]["properties"]["beta1"]["exclusiveMaximum"], 1);
  EXPECT_EQ(schema["required"], Json::array({"name", "model", "dataset", "training"}));
  EXPECT_EQ(schema["properties"]["model"]["required"], Json::array({"weights"}));
}

TEST(JobSchemaTest, MostFieldsSayWhatTheyMean) {
  const Json schema = Json::parse(Schema());
  int described = 0, fields = 0;
  for (const auto& [section, table] : schema["properties"].items()) {
    if (!table.contains("properties")) continue;
    for (const auto& [name, field] : table["properties"].items()) {
      ++fields;
      if (field.contains("description")) ++described;
    }
  }
  EXPECT_GE(fields, 50);
  EXPECT_GT(described, fields * 3 / 4);
}

TEST(JobSchemaTest, RulesAreThoseOfTheFieldsThereAre) {
  const auto rules = JobFieldRules();
  EXPECT_GT(rules.size(), 40u);
  const auto* job = v1::JobSpec::descriptor();
  for (const FieldRule& rule : rules) {
    const auto* message = job;
    std::string rest = rule.field;
    for (size_t dot = rest.find('.'); dot != std::string::npos; dot = rest.find('.')) {
      const auto* field = message->FindFieldByName(rest.substr(0, dot));
      ASSERT_NE(field, nullptr) << rule.field;
      message = field->message_type();
      rest = rest.substr(dot + 1);
    }
    EXPECT_NE(message->FindFieldByName(rest), nullptr) << rule.field;
  }
}

TEST(JobSchemaTest, WhatIsNoDescriptorSetIsRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(JobSchema("").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(JobSchema("garbage").status()));
}

}  // namespace
}  // namespace blockswap::worker
