// SPDX-License-Identifier: Apache-2.0
// A spec without a fault below three real roots, for tests that break one thing of it.
#ifndef BLOCKSWAP_TESTS_WORKER_CONFIG_SPEC_FIXTURE_H_
#define BLOCKSWAP_TESTS_WORKER_CONFIG_SPEC_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/worker/data/temp_directory.h"
#include "worker/config/spec_validation.h"

namespace blockswap::worker {

class SpecFixture : public ::testing::Test {
 protected:
  SpecFixture() {
    directory_.Write("models/base.safetensors", "x");
    directory_.Write("models/base/config.json", "{}");
    directory_.Write("datasets/d.toml", "x");
    directory_.Write("datasets/prompts.txt", "x");
    directory_.Write("outside/secret.safetensors", "x");
    roots_ = {directory_.Path("models"), directory_.Path("datasets"), directory_.Make("outputs")};
    good_.set_name("digits");
    good_.mutable_model()->set_weights("base.safetensors");
    good_.mutable_dataset()->set_config("d.toml");
    good_.mutable_training()->set_max_steps(10);
  }

  SpecResult With(const std::function<void(v1::JobSpec&)>& change) {
    v1::JobSpec spec = good_;
    change(spec);
    return ValidateSpec(spec, roots_);
  }
  // Expects exactly one violation, of `field`.
  void ExpectViolation(const std::function<void(v1::JobSpec&)>& change, const std::string& field,
                       const std::string& text = "") {
    const SpecResult result = With(change);
    ASSERT_EQ(result.violations.size(), 1u) << field << " " << text;
    EXPECT_FALSE(result.config.has_value());
    EXPECT_EQ(result.violations[0].field, field);
    EXPECT_THAT(result.violations[0].description, ::testing::HasSubstr(text));
  }

  const TempDirectory directory_;
  Roots roots_;
  v1::JobSpec good_;
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_TESTS_WORKER_CONFIG_SPEC_FIXTURE_H_
