// SPDX-License-Identifier: Apache-2.0
#include "worker/data/dataset_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/worker/data/temp_directory.h"
#include "tests/worker/data/tiny_dataset.h"

namespace blockswap::worker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kToml[] =
    "[general]\nresolution = 64\ncaption_extension = '.txt'\nbatch_size = 4\n"
    "[[datasets]]\nimage_directory = 'images'\ncache_directory = 'cache'\n";

class DatasetBuilderTest : public ::testing::Test {
 protected:
  std::string Name(int i) { return absl::StrCat("item_", i); }
  // Images, captions, latent and text caches of items 0 to n-1.
  void WriteItems(int images, int latents, int texts) {
    directory_.Make("images");
    directory_.Make("cache");
    for (int i = 0; i < images; ++i) WriteImage(directory_.Path("images"), Name(i));
    for (int i = 0; i < latents; ++i) WriteLatentCache(directory_.Path("cache"), Name(i));
    for (int i = 0; i < texts; ++i) WriteTextCache(directory_.Path("cache"), Name(i));
  }
  absl::StatusOr<std::shared_ptr<Dataset>> Open(const std::string& toml = kToml,
                                                MissingPolicy policy = MissingPolicy::kError,
                                                const std::string& root = "") {
    violations_.clear();
    return Dataset::Open(directory_.Write("d.toml", toml), **FindFamily("qwen_image"),
                         TinyModelDescription(), policy, &violations_, root);
  }
  std::string AllViolations() {
    const absl::Status status = ViolationsToStatus(violations_);
    return std::string(status.message().data(), status.message().size());
  }

  const TempDirectory directory_;
  std::vector<FieldViolation> violations_;
};

TEST_F(DatasetBuilderTest, IndexesItemsFromHeaders) {
  WriteItems(5, 5, 5);
  const auto dataset = Open();
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  ASSERT_EQ((*dataset)->items().size(), 5u);
  const DatasetItem& item = (*dataset)->items()[2];
  EXPECT_EQ(item.name, "item_2");
  EXPECT_EQ(item.latent_key, "latents_1x8x8_float32");
  EXPECT_EQ(item.text_key, "varlen_vl_embed_float32");
  EXPECT_EQ(item.channels, 2);
  EXPECT_EQ(item.text_tokens, 5);
  ASSERT_EQ((*dataset)->buckets().size(), 1u);
  EXPECT_EQ((*dataset)->buckets()[0].latent_width, 8);
  EXPECT_EQ((*dataset)->batches_per_epoch(), 2) << "four and one: the last batch is short";
  EXPECT_EQ((*dataset)->counts().used, 5);
  EXPECT_THAT((*dataset)->warnings(), IsEmpty());
  const auto tokens = (*dataset)->token_counts(TinyModelDescription());
  EXPECT_EQ(tokens[0].image, 16);
  EXPECT_EQ(tokens[0].text, 5);
  EXPECT_EQ(tokens[0].batch, 4);
  EXPECT_THAT((*dataset)->datasets_json(), HasSubstr("\"image_directory\":\"images\""));
  EXPECT_THAT((*dataset)->datasets_json(), Not(HasSubstr(directory_.path())));
}

// F019: a folder shared with other data: what the sources do not declare is not trained on, and
// that is counted.
TEST_F(DatasetBuilderTest, UsesOnlyWhatTheSourcesDeclare) {
  WriteItems(0, 10, 10);
  directory_.Write("list.jsonl",
                   "{\"image_path\": \"x/item_1.png\", \"caption\": \"a caption\"}\n\n"
                   "{\"image_path\": \"item_4.jpg\", \"caption\": \" a caption \"}\n"
                   "{\"image_path\": \"item_7.webp\", \"caption\": \"a caption\"}\n");
  const auto dataset = Open(
      "[general]\nresolution = 64\n[[datasets]]\nimage_jsonl_file = 'list.jsonl'\ncache_directory "
      "= 'cache'\n");
  ASSERT_TRUE(dataset.ok()) << AllViolations();
  EXPECT_EQ((*dataset)->counts().declared, 3);
  EXPECT_EQ((*dataset)->counts().found, 10);
  EXPECT_EQ((*dataset)->counts().used, 3);
  EXPECT_THAT((*dataset)->warnings(),
              Contains(HasSubstr("caches of 7 items that the data set does not declare")));
}

// F019: the same real folder twice is refused however it is spelled.
TEST_F(DatasetBuilderTest, RefusesTheSameFolderTwice) {
  WriteItems(2, 2, 2);
  ASSERT_EQ(symlink("cache", directory_.Path("link").c_str()), 0);
  for (const char* second : {"cache", "./cache", "link", "images/../cache"}) {
    EXPECT_FALSE(
        Open(absl::StrCat(kToml, "[[datasets]]\ncache_directory = '", second, "'\n")).ok());
    EXPECT_THAT(AllViolations(),
                HasSubstr("datasets[1].cache_directory: is the same folder as that of datasets[0]"))
        << second;
  }
}

TEST_F(DatasetBuilderTest, TrainsOnAllCachesOfAFolderWithoutSources) {
  WriteItems(0, 3, 4);
  const auto dataset =
      Open("[general]\nresolution = 64\n[[datasets]]\ncache_directory = 'cache'\n");
  ASSERT_TRUE(dataset.ok()) << AllViolations();
  EXPECT_EQ((*dataset)->counts().declared, 3);
  EXPECT_THAT((*dataset)->warnings(), Contains(HasSubstr("item_3")))
      << "a text cache without latents";
}

// F021: missing caches are an error in strict mode and a visible count otherwise; none left is
// always an error.
TEST_F(DatasetBuilderTest, CountsItemsWithoutTextCaches) {
  WriteItems(10, 10, 7);
  EXPECT_FALSE(Open().ok());
  EXPECT_THAT(AllViolations(), HasSubstr("3 items without a text cache: item_7; item_8; item_9"));
  const auto dataset = Open(kToml, MissingPolicy::kSkip);
  ASSERT_TRUE(dataset.ok()) << AllViolations();
  EXPECT_EQ((*dataset)->counts().declared, 10);
  EXPECT_EQ((*dataset)->counts().used, 7);
  EXPECT_EQ((*dataset)->counts().skipped, 3);
  EXPECT_THAT((*dataset)->warnings(), Contains(HasSubstr("3 items without a text cache")));
}

TEST_F(DatasetBuilderTest, RefusesADataSetWithoutUsableItems) {
  WriteItems(10, 10, 0);
  EXPECT_FALSE(Open(kToml, MissingPolicy::kSkip).ok());
  EXPECT_THAT(AllViolations(), HasSubstr("no usable item: 10 declared, 10 latent caches "
                                         "*_WIDTHxHEIGHT_qi.safetensors and 0 text"));
  EXPECT_THAT(AllViolations(), HasSubstr(directory_.Path("cache")));
  EXPECT_THAT(AllViolations(), HasSubstr("the first missing item is \"item_0\""));
}

TEST_F(DatasetBuilderTest, RefusesAnEmptyFolder) {
  WriteItems(0, 0, 0);
  for (const MissingPolicy policy : {MissingPolicy::kError, MissingPolicy::kSkip}) {
    EXPECT_FALSE(Open(kToml, policy).ok());
    EXPECT_THAT(AllViolations(), HasSubstr("no usable item: 0 declared"));
  }
  directory_.Write("cache/a_0064x0064_wan.safetensors", "");
  EXPECT_FALSE(Open().ok());
  EXPECT_THAT(AllViolations(), HasSubstr("1 files there belong to other architectures"));
}

TEST_F(DatasetBuilderTest, CountsImagesWithoutCaptionOrLatents) {
  WriteItems(4, 3, 4);
  std::filesystem::remove(directory_.Path("images/item_0.txt"));
  EXPECT_FALSE(Open().ok());
  EXPECT_THAT(AllViolations(), HasSubstr("1 item without a latent cache: item_3"));
  EXPECT_THAT(AllViolations(), HasSubstr("1 item without a caption: "));
  EXPECT_EQ((*Open(kToml, MissingPolicy::kSkip))->counts().used, 2);
}

// F022: caches of another architecture, of a newer format or without what the model needs are found
// from their headers, and no policy skips them.
TEST_F(DatasetBuilderTest, RefusesForeignCachesUnderEveryPolicy) {
  struct Case {
    TinyLatent latent;
    const char* expected;
  };
  const auto with = [](auto change) {
    TinyLatent latent;
    change(latent);
    return latent;
  };
  const Case cases[] = {
      {with([](auto& x) {
         x.metadata = {{"architecture", "wan"}};
       }),
       "1 item with a cache of another architecture: item_0_0064x0064_qi.safetensors: made for "
       "\"wan\", expected qwen_image"},
      {with([](auto& x) {
         x.metadata = {{"architecture", ""}};
       }),
       "names no architecture"},
      {with([](auto& x) {
         x.metadata = {{"format_version", "1.0.2"}};
       }),
       "format_version \"1.0.2\", known up to 1.0.1"},
      {with([](auto& x) {
         x.metadata = {{"format_version", "2.0.0"}};
       }),
       "known up to 1.0.1"},
      {with([](auto& x) {
         x.metadata = {{"format_version", "x"}};
       }),
       "known up to 1.0.1"},
      {with([](auto& x) {
         x.metadata = {{"width", "wide"}};
       }),
       "metadata lacks width and height"},
      {with([](auto& x) { x.channels = 16; }),
       "latents have 16 channels and 1 frames, the model takes 2 and 1"},
      {with([](auto& x) { x.frames = 5; }), "latents have 2 channels and 5 frames"},
      {with([](auto& x) { x.key = "image_embeds_float32"; }), "has no latents_FxHxW_dtype tensor"},
      {with([](auto& x) { x.key = "latents_1x8x9_float32"; }),
       "does not fit its tensor [2, 1, 8, 8]"},
  };
  for (const Case& one : cases) {
    WriteItems(2, 2, 2);
    WriteLatentCache(directory_.Path("cache"), Name(0), one.latent);
    for (const MissingPolicy policy : {MissingPolicy::kError, MissingPolicy::kSkip}) {
      EXPECT_FALSE(Open(kToml, policy).ok()) << one.expected;
      EXPECT_THAT(AllViolations(), HasSubstr(one.expected));
    }
  }
}

TEST_F(DatasetBuilderTest, RefusesForeignTextCaches) {
  WriteItems(2, 2, 2);
  TinyText text;
  text.features = 3584;
  WriteTextCache(directory_.Path("cache"), Name(1), text);
  EXPECT_FALSE(Open().ok());
  EXPECT_THAT(AllViolations(),
              HasSubstr("has shape [5, 3584] and type F32, expected one [tokens, 24]"));
  text = TinyText();
  text.key = "t5_vec_float32";
  WriteTextCache(directory_.Path("cache"), Name(1), text);
  EXPECT_FALSE(Open().ok());
  EXPECT_THAT(AllViolations(), HasSubstr("has no varlen_vl_embed_dtype tensor"));
}

// F023: control latents go into the bucket key (bucket_assignment_test); this family does not take
// them and says so.
TEST_F(DatasetBuilderTest, RefusesControlLatents) {
  WriteItems(2, 2, 2);
  TinyLatent latent;
  latent.controls = {{2, 1, 8, 8}};
  WriteLatentCache(directory_.Path("cache"), Name(1), latent);
  EXPECT_FALSE(Open(kToml, MissingPolicy::kSkip).ok());
  EXPECT_THAT(AllViolations(), HasSubstr("1 item with control latents"));
}

// F025: a deleted source, a changed caption and a changed size are each reported; two sizes of one
// item never train.
TEST_F(DatasetBuilderTest, ReportsStaleCaches) {
  WriteItems(6, 6, 6);
  std::filesystem::remove(directory_.Path("images/item_0.png"));
  directory_.Write("images/item_1.txt", "an edited caption");
  TinyLatent other;
  other.width = other.height = 128;
  WriteLatentCache(directory_.Path("cache"), Name(2), other);
  EXPECT_FALSE(Open().ok());
  EXPECT_THAT(AllViolations(),
              HasSubstr("1 item whose caption is not the one its text cache was made from"));
  EXPECT_THAT(AllViolations(), HasSubstr("1 item with latent caches of more than one media size; "
                                         "delete the stale ones: item_2 (64x64, 128x128)"));
  const auto dataset = Open(kToml, MissingPolicy::kSkip);
  ASSERT_TRUE(dataset.ok()) << AllViolations();
  EXPECT_THAT((*dataset)->warnings(),
              Contains(HasSubstr("that the data set does not declare are not used: item_0")));
  EXPECT_EQ((*dataset)->counts().used, 3);
  for (const DatasetItem& item : (*dataset)->items()) EXPECT_NE(item.name, "item_2");
}

// F094: name, metadata and tensor must agree with each other and with the bucket; the message names
// all three.
TEST_F(DatasetBuilderTest, RefusesSizesThatDisagree) {
  const std::string toml =
      "[general]\nresolution = [960, 544]\n[[datasets]]\ncache_directory = 'cache'\n";
  TinyLatent latent;
  latent.width = 960;
  latent.height = 544;
  latent.tensor_width = 120;
  latent.tensor_height = 68;
  WriteLatentCache(directory_.Path("cache"), "right", latent);
  WriteTextCache(directory_.Path("cache"), "right");
  ASSERT_TRUE(Open(toml).ok()) << AllViolations();
  std::swap(latent.tensor_width, latent.tensor_height);
  WriteLatentCache(directory_.Path("cache"), "right", latent);
  EXPECT_FALSE(Open(toml).ok());
  EXPECT_THAT(
      AllViolations(),
      HasSubstr(
          "width x height is 960x544 by the name, 960x544 by the metadata, 544x960 by the tensor"));
  std::swap(latent.tensor_width, latent.tensor_height);
  latent.metadata = {{"width", "544"}, {"height", "960"}};
  WriteLatentCache(directory_.Path("cache"), "right", latent);
  EXPECT_FALSE(Open(toml).ok());
  EXPECT_THAT(AllViolations(), HasSubstr("544x960 by the metadata"));
}

TEST_F(DatasetBuilderTest, TakesMediaThatWereResizedIntoTheirBucket) {
  TinyLatent
      latent;  // 200x100 is twice as wide as high: 80x48 of 64x64's buckets is nearest after 128x32
  latent.width = 200;
  latent.height = 100;
  latent.tensor_width = 10;
  latent.tensor_height = 6;
  WriteLatentCache(directory_.Path("cache"), "a", latent);
  WriteTextCache(directory_.Path("cache"), "a");
  const auto dataset = Open(
      "[general]\nresolution = 64\nenable_bucket = true\n[[datasets]]\ncache_directory = "
      "'cache'\n");
  ASSERT_TRUE(dataset.ok()) << AllViolations();
  EXPECT_EQ((*dataset)->buckets()[0].width, 80);
  EXPECT_EQ((*dataset)->buckets()[0].height, 48);
}

TEST_F(DatasetBuilderTest, RefusesResolutionsWithoutABucket) {
  WriteItems(1, 1, 1);
  EXPECT_FALSE(Open("[general]\nresolution = 16\nenable_bucket = "
                    "true\n[[datasets]]\ncache_directory = 'cache'\n")
                   .ok());
  EXPECT_THAT(AllViolations(), HasSubstr("datasets[0].resolution: resolution 16x16 is too small"));
  EXPECT_FALSE(Open("[general]\nresolution = 40\n[[datasets]]\ncache_directory = 'cache'\n").ok());
  EXPECT_THAT(AllViolations(),
              HasSubstr("sides must be multiples of 16 without enable_bucket, is 40x40"));
}

TEST_F(DatasetBuilderTest, NamesDamagedCaches) {
  WriteItems(3, 3, 3);
  const std::string path = directory_.Path("cache/item_1_0064x0064_qi.safetensors");
  std::filesystem::resize_file(
      path, std::filesystem::file_size(path) - 1);  // F042: the same verdict as everywhere
  EXPECT_FALSE(Open().ok());
  EXPECT_THAT(AllViolations(), HasSubstr("1 item whose cache cannot be read: "));
  EXPECT_THAT(AllViolations(), HasSubstr("the file is cut short"));
  EXPECT_EQ((*Open(kToml, MissingPolicy::kSkip))->counts().used, 2);
}

// Row 33 of the fault list: a data set file must not lead out of the datasets root either.
TEST_F(DatasetBuilderTest, KeepsFoldersBelowTheRoot) {
  WriteItems(1, 1, 1);
  const TempDirectory outside;
  WriteLatentCache(outside.path(), "secret");
  WriteTextCache(outside.path(), "secret");
  ASSERT_EQ(symlink(outside.path().c_str(), directory_.Path("escape").c_str()), 0);
  const std::string up =
      absl::StrCat("../", std::filesystem::path(outside.path()).filename().string());
  for (const std::string& path : {outside.path(), std::string("escape"), up}) {
    EXPECT_FALSE(Open(absl::StrCat("[[datasets]]\ncache_directory = '", path, "'\n"),
                      MissingPolicy::kError, directory_.path())
                     .ok());
    EXPECT_THAT(AllViolations(), HasSubstr("leads outside the datasets root")) << path;
  }
  EXPECT_TRUE(Open(kToml, MissingPolicy::kError, directory_.path()).ok()) << AllViolations();
}

TEST_F(DatasetBuilderTest, ReportsMissingFolders) {
  EXPECT_FALSE(Open().ok());
  EXPECT_THAT(AllViolations(),
              HasSubstr("datasets[0].cache_directory: cannot open \"cache\": no such file"));
}

}  // namespace
}  // namespace blockswap::worker
