// SPDX-License-Identifier: Apache-2.0
// The paths of a spec: nothing outside the roots, nothing but regular files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>

#include "tests/worker/data/temp_directory.h"
#include "worker/config/spec_validation.h"

namespace blockswap::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class SpecPathsTest : public ::testing::Test {
 protected:
  SpecPathsTest() {
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
    EXPECT_THAT(result.violations[0].description, HasSubstr(text));
  }

  const TempDirectory directory_;
  Roots roots_;
  v1::JobSpec good_;
};

// Row 33 of the fault list: nothing outside the roots, and no word about what lies there.
TEST_F(SpecPathsTest, RefusesPathsThatLeaveTheirRoot) {
  ASSERT_EQ(symlink("../outside/secret.safetensors", directory_.Path("models/link").c_str()), 0);
  ASSERT_EQ(symlink("../outside", directory_.Path("models/dir").c_str()), 0);
  ASSERT_EQ(symlink("/proc/self/root", directory_.Path("models/magic").c_str()), 0);
  for (const std::string& path :
       {std::string("../outside/secret.safetensors"), directory_.Path("outside/secret.safetensors"),
        std::string("/etc/passwd"), std::string("base/../../outside/secret.safetensors"),
        std::string("link"), std::string("dir/secret.safetensors"), std::string("//etc/passwd"),
        std::string("/"), std::string("magic/etc/passwd"),
        std::string("base.safetensors\0.txt", 21),
        directory_.Path("models/../outside/secret.safetensors"),
        directory_.Path("models-evil/x")}) {
    const SpecResult result = With([&](auto& s) { s.mutable_model()->set_weights(path); });
    ASSERT_EQ(result.outside_roots.size(), 1u) << path;
    EXPECT_EQ(result.outside_roots[0].field, "model.weights");
    EXPECT_FALSE(result.config.has_value());
    EXPECT_TRUE(result.violations.empty());
    if (path == "link" || path == "dir/secret.safetensors") {
      EXPECT_THAT(result.outside_roots[0].description, Not(HasSubstr("outside/secret")));
    }
  }
  for (const char* path : {"%2e%2e/outside/secret.safetensors", "\u2025/x", "nothing.safetensors",
                           "base.safetensors/x"}) {
    ExpectViolation([&](auto& s) { s.mutable_model()->set_weights(path); }, "model.weights",
                    "no such file");
  }
}

TEST_F(SpecPathsTest, TakesPathsBelowTheRootHoweverSpelled) {
  ASSERT_EQ(symlink("base.safetensors", directory_.Path("models/alias").c_str()), 0);
  for (const std::string& path :
       {std::string("./base.safetensors"), directory_.Path("models/base.safetensors"),
        directory_.Path("models//base.safetensors"), std::string("alias"),
        std::string("base/../base.safetensors"), std::string("base")}) {
    const SpecResult result = With([&](auto& s) { s.mutable_model()->set_weights(path); });
    EXPECT_TRUE(result.config.has_value()) << path;
  }
}

TEST_F(SpecPathsTest, AnEmptyRootAllowsEveryPath) {
  roots_ = Roots();
  const SpecResult result = With([&](auto& s) {
    s.mutable_model()->set_weights(directory_.Path("outside/secret.safetensors"));
    s.mutable_dataset()->set_config(directory_.Path("datasets/d.toml"));
  });
  EXPECT_TRUE(result.config.has_value());
}

// Row 34 of the fault list: only regular files, and no waiting for a FIFO's writer.
TEST_F(SpecPathsTest, RefusesWhatIsNoRegularFile) {
  ASSERT_EQ(mkfifo(directory_.Path("datasets/fifo").c_str(), 0600), 0);
  ExpectViolation([](auto& s) { s.mutable_dataset()->set_config("fifo"); }, "dataset.config",
                  "must be a regular file");
  ExpectViolation([](auto& s) { s.mutable_dataset()->set_config("."); }, "dataset.config",
                  "is a directory");
}

}  // namespace
}  // namespace blockswap::worker
