// SPDX-License-Identifier: Apache-2.0
#include "worker/data/cache_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/data/temp_directory.h"

namespace blockswap::worker {
namespace {

using ::testing::ElementsAre;

TEST(CacheDirectoryTest, SortsFilesByTheirNames) {
  const TempDirectory directory;
  for (const char* name :
       {"a_0064x0048_qi.safetensors", "a_12800x0048_qi.safetensors",
        "b_1_qi_0064x0064_qi.safetensors", "a_qi_te.safetensors", "b_1_qi_qi_te.safetensors",
        "c_0064x0064_wan.safetensors", "d_qi.safetensors", "e_64x64_qi.safetensors",
        "f_0064x00x64_qi.safetensors", "_0064x0064_qi.safetensors", "notes.txt",
        ".g_0064x0064_qi.safetensors.tmp-1"}) {
    directory.Write(name, "");
  }
  const auto caches = ListCaches(directory.path(), "qi");
  ASSERT_TRUE(caches.ok());
  EXPECT_EQ(caches->num_latents(), 3);
  ASSERT_EQ(caches->latents.at("a").size(), 2u);
  EXPECT_EQ(caches->latents.at("a")[0].width, 64);
  EXPECT_EQ(caches->latents.at("a")[0].height, 48);
  EXPECT_EQ(caches->latents.at("a")[1].width, 12800);
  EXPECT_EQ(caches->latents.count("b_1_qi"), 1u)
      << "an item may have underscores and the short name in its own";
  EXPECT_EQ(caches->texts.size(), 2u);
  EXPECT_EQ(caches->texts.count("b_1_qi"), 1u);
  EXPECT_EQ(caches->of_other_families, 1);
  EXPECT_THAT(caches->malformed,
              ElementsAre("_0064x0064_qi.safetensors", "d_qi.safetensors", "e_64x64_qi.safetensors",
                          "f_0064x00x64_qi.safetensors"));
  EXPECT_TRUE(absl::IsNotFound(ListCaches(directory.Path("none"), "qi").status()));
}

}  // namespace
}  // namespace blockswap::worker
