// SPDX-License-Identifier: Apache-2.0
// The paths of a spec: nothing outside the roots, nothing but regular files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>

#include "tests/worker/config/spec_fixture.h"
#include "worker/config/spec_validation.h"

namespace blockswap::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class SpecPathsTest : public SpecFixture {};

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
