// SPDX-License-Identifier: Apache-2.0
#include "worker/data/media_sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/worker/data/temp_directory.h"

namespace blockswap::worker {
namespace {

using ::testing::HasSubstr;

TEST(MediaSourcesTest, ListsImagesSortedWithTheirCaptions) {
  const TempDirectory directory;
  directory.Write("b.JPG", "");
  directory.Write("a.b.png", "");
  directory.Write("c.mp4", "");
  directory.Write("a.b.txt", "  a caption \n");
  const auto items = ItemsOfDirectory(directory.path(), ".txt");
  ASSERT_TRUE(items.ok()) << items.status();
  ASSERT_EQ(items->size(), 2u);
  EXPECT_EQ((*items)[0].name, "a.b");
  EXPECT_EQ((*items)[0].caption, "a caption");
  EXPECT_TRUE((*items)[1].caption_missing);
  EXPECT_FALSE((*ItemsOfDirectory(directory.path(), ""))[1].caption_missing) << "none is asked for";
}

TEST(MediaSourcesTest, RefusesTwoItemsOfOneName) {
  const TempDirectory directory;
  directory.Write("a.png", "");
  directory.Write("a.jpg", "");
  EXPECT_THAT(ItemsOfDirectory(directory.path(), "").status().ToString(),
              HasSubstr("two items are named \"a\""));
  const auto lines = ItemsOfJsonl(
      directory.Write("l.jsonl",
                      "{\"image_path\":\"x/a.png\",\"caption\":\"\"}\n{\"image_path\":\"y/"
                      "a.png\",\"caption\":\"\"}\n"));
  EXPECT_THAT(lines.status().ToString(), HasSubstr("l.jsonl line 1 and l.jsonl line 2"));
}

TEST(MediaSourcesTest, NamesTheLineThatIsWrong) {
  const TempDirectory directory;
  const std::string good = "{\"image_path\":\"ok.png\",\"caption\":\"\"}\n";
  for (const char* bad :
       {"{", "[]", "{\"caption\":\"x\"}", "{\"image_path\":3}", "{\"image_path\":\"\"}",
        "{\"image_path\":\"a.png\",\"caption\":3}", "{\"video_path\":\"a.mp4\"}",
        "{\"image_path\":\"a.png\",\"control_path\":\"c.png\"}"}) {
    const auto items =
        ItemsOfJsonl(directory.Write("l.jsonl", absl::StrCat(good, "\n", bad, "\n")));
    EXPECT_THAT(items.status().ToString(), HasSubstr("l.jsonl line 3")) << bad;
  }
}

}  // namespace
}  // namespace blockswap::worker
