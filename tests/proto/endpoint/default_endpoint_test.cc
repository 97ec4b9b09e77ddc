// SPDX-License-Identifier: Apache-2.0
#include "proto/endpoint/default_endpoint.h"

#include <cstdlib>

#include "gtest/gtest.h"

namespace blockswap::proto {
namespace {

class DefaultEndpointTest : public testing::Test {
 protected:
  void SetUp() override {
    unsetenv("XDG_RUNTIME_DIR");
    unsetenv("XDG_STATE_HOME");
    setenv("HOME", "/home/someone", 1);
  }
};

TEST_F(DefaultEndpointTest, UsesTheRuntimeDirectoryWhenThereIsOne) {
  setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
  EXPECT_EQ(DefaultServerTarget(), "unix:/run/user/7/blockswap/blockswapd.sock");
}

TEST_F(DefaultEndpointTest, FallsBackToTheStateDirectory) {
  EXPECT_EQ(DefaultServerTarget(), "unix:/home/someone/.local/state/blockswap/blockswapd.sock");
  setenv("XDG_STATE_HOME", "/srv/state", 1);
  EXPECT_EQ(DefaultServerTarget(), "unix:/srv/state/blockswap/blockswapd.sock");
  EXPECT_EQ(DefaultSocketPath("/elsewhere"), "/elsewhere/blockswapd.sock");
}

TEST_F(DefaultEndpointTest, IgnoresRelativePathsAndWorksWithoutHome) {
  setenv("XDG_RUNTIME_DIR", "run", 1);
  setenv("XDG_STATE_HOME", "", 1);
  unsetenv("HOME");
  EXPECT_EQ(DefaultServerTarget(), "unix:/var/lib/blockswap/blockswapd.sock");
}

}  // namespace
}  // namespace blockswap::proto
