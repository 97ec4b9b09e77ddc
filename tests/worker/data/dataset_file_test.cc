// SPDX-License-Identifier: Apache-2.0
#include "worker/data/dataset_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace blockswap::worker {
namespace {

using ::testing::HasSubstr;

std::vector<FieldViolation> Faults(const std::string& text) {
  std::vector<FieldViolation> violations;
  ParseDatasetFile(text, "qwen_image", &violations);
  return violations;
}

TEST(DatasetFileTest, LooksInTheDataSetThenInGeneralThenTakesTheDefault) {
  std::vector<FieldViolation> violations;
  const auto tables = ParseDatasetFile(R"(
[general]
resolution = [64, 128]
batch_size = 4
caption_extension = ".txt"
[[datasets]]
image_directory = "a"
cache_directory = "ca"
batch_size = 2
[[datasets]]
image_jsonl_file = "b.jsonl"
cache_directory = "cb"
resolution = 32
num_repeats = 3
enable_bucket = true
bucket_no_upscale = true
)",
                                       "qwen_image", &violations);
  ASSERT_TRUE(violations.empty()) << violations[0].description;
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_EQ(tables[0].width, 64);
  EXPECT_EQ(tables[0].height, 128);
  EXPECT_EQ(tables[0].batch_size, 2);
  EXPECT_EQ(tables[0].num_repeats, 1);
  EXPECT_EQ(tables[0].caption_extension, ".txt");
  EXPECT_FALSE(tables[0].enable_bucket);
  EXPECT_EQ(tables[1].width, 32);
  EXPECT_EQ(tables[1].height, 32);
  EXPECT_EQ(tables[1].batch_size, 4);
  EXPECT_EQ(tables[1].num_repeats, 3);
  EXPECT_TRUE(tables[1].bucket_no_upscale);
  const auto defaults =
      ParseDatasetFile("[[datasets]]\nimage_directory='a'", "qwen_image", &violations);
  EXPECT_EQ(defaults[0].width, 960);
  EXPECT_EQ(defaults[0].height, 544);
}

// F026: every broken file gets line, table, key, what was expected and the nearest valid name.
TEST(DatasetFileTest, ExplainsEveryBrokenFile) {
  struct Case {
    const char *text, *field, *line, *expected;
  };
  const std::string set = "[[datasets]]\nimage_directory = 'a'\n";
  const Case cases[] = {
      {"", "dataset.config.datasets", "line ", "no [[datasets]] table"},
      {"[general]\nbatch_size = 1\n", "dataset.config.datasets", "line ", "no [[datasets]] table"},
      {"general]\n", "dataset.config", "line 1", ""},
      {"[general\n", "dataset.config", "line ", ""},
      {"[general]\nbatch_size = \n[[datasets]]\n", "dataset.config", "line 2", ""},
      {"[general]\nresolutoin = 64\n#SET", "dataset.config.general.resolutoin", "line 2, column 1",
       "unknown key \"resolutoin\" in [general], did you mean \"resolution\"?"},
      {"[general]\nbatchsize = 64\n#SET", "dataset.config.general.batchsize", "line 2",
       "did you mean \"batch_size\"?"},
      {"[general]\nzebra = 64\n#SET", "dataset.config.general.zebra", "line 2",
       "expected one of resolution, caption_extension"},
      {"[general]\nimage_directory = 'x'\n#SET", "dataset.config.general.image_directory", "line 2",
       "belongs in [[datasets]], not in [general]"},
      {"[general]\nbatch_size = 1\nbatch_size = 2\n#SET", "dataset.config", "line 3", "batch_size"},
      {"[general]\n[general]\n#SET", "dataset.config", "line 2", "general"},
      {"[[general]]\nbatch_size = 1\n#SET", "dataset.config.general", "line 1",
       "one table [general] is meant, found [[general]]"},
      {"general = 3\n#SET", "dataset.config.general", "line 1", "is meant, found the number 3"},
      {"[datasets]\nimage_directory = 'a'\n", "dataset.config.datasets", "line 1",
       "a list of tables [[datasets]] is meant, found one table [datasets]"},
      {"datasets = []\n", "dataset.config.datasets", "line 1", "[[datasets]] is meant"},
      {"datasets = [1]\n", "dataset.config.datasets", "line 1", "[[datasets]] is meant"},
      {"batch_size = 3\n#SET", "dataset.config.batch_size", "line 1",
       "\"batch_size\" belongs in [general] or [[datasets]]"},
      {"[genral]\nbatch_size = 3\n#SET", "dataset.config.genral", "line 1",
       "unknown table \"genral\", did you mean \"general\"?"},
      {"[[dataset]]\nimage_directory = 'a'\n", "dataset.config.dataset", "line 1",
       "did you mean \"datasets\"?"},
      {"#SETbatch_size = 0\n", "dataset.config.datasets[0].batch_size", "line 3",
       "must be a whole number from 1 to 1000000, is the number 0"},
      {"#SETbatch_size = '4'\n", "dataset.config.datasets[0].batch_size", "line 3", "is text"},
      {"#SETbatch_size = 4.5\n", "dataset.config.datasets[0].batch_size", "line 3",
       "is the number 4.5"},
      {"#SETnum_repeats = 0\n", "dataset.config.datasets[0].num_repeats", "line 3", "from 1 to"},
      {"#SETnum_repeats = -1\n", "dataset.config.datasets[0].num_repeats", "line 3",
       "is the number -1"},
      {"#SETnum_repeats = 9223372036854775807\n", "dataset.config.datasets[0].num_repeats",
       "line 3", "from 1 to"},
      {"#SETenable_bucket = 'yes'\n", "dataset.config.datasets[0].enable_bucket", "line 3",
       "must be true or false, is text"},
      {"#SETresolution = [64]\n", "dataset.config.datasets[0].resolution", "line 3",
       "or two of them, [width, height], is a list"},
      {"#SETresolution = [64, 0]\n", "dataset.config.datasets[0].resolution", "line 3",
       "is a list"},
      {"#SETresolution = [64, 64, 64]\n", "dataset.config.datasets[0].resolution", "line 3",
       "is a list"},
      {"#SETresolution = '64x64'\n", "dataset.config.datasets[0].resolution", "line 3", "is text"},
      {"#SETcaption_extension = 3\n", "dataset.config.datasets[0].caption_extension", "line 3",
       "must be text in quotes"},
      {"#SETcache_directory = ['a', 'b']\n", "dataset.config.datasets[0].cache_directory", "line 3",
       "must be text in quotes, is a list"},
      {"#SETcache_dir = 'a'\n", "dataset.config.datasets[0].cache_dir", "line 3", "unknown key"},
      {"#SETimage_jsonl_file = 'a'\n", "dataset.config.datasets[0]", "line ",
       "only one may be given"},
      {"[[datasets]]\nimage_jsonl_file = 'a'\n", "dataset.config.datasets[0]", "line 1",
       "cache_directory is required with image_jsonl_file"},
      {"[[datasets]]\nbatch_size = 1\n", "dataset.config.datasets[0]", "line 1",
       "one of image_directory, image_jsonl_file or"},
      {"[[datasets]]\nvideo_directory = 'a'\ncache_directory = 'c'\n",
       "dataset.config.datasets[0].video_directory", "line 2",
       "video data sets are not available for qwen_image yet"},
      {"#SETcontrol_directory = 'a'\n", "dataset.config.datasets[0].control_directory", "line 3",
       "control images are not available"},
  };
  for (const Case& one : cases) {
    std::string text = one.text;
    const size_t mark = text.find("#SET");
    if (mark != std::string::npos) text.replace(mark, 4, set);
    const auto violations = Faults(text);
    ASSERT_FALSE(violations.empty()) << text;
    EXPECT_EQ(violations[0].field, one.field) << text;
    EXPECT_THAT(violations[0].description, HasSubstr(one.line)) << text;
    EXPECT_THAT(violations[0].description, HasSubstr(one.expected)) << text;
  }
}

TEST(DatasetFileTest, ReportsAllFaultsOfAFileAtOnce) {
  const auto violations =
      Faults("[general]\nfoo = 1\nbatch_size = 0\n[[datasets]]\nimage_directory = 1\n");
  EXPECT_EQ(violations.size(), 4u)
      << "the directory counts twice: of the wrong type, and so missing";
}

TEST(DatasetFileTest, SurvivesDeepNestingAndNonsense) {
  EXPECT_FALSE(Faults(absl::StrCat("a = ", std::string(100'000, '['))).empty());
  EXPECT_FALSE(Faults(std::string(1000, '\0')).empty());
  EXPECT_FALSE(Faults("\xff\xfe\xff").empty());
  EXPECT_FALSE(Faults("[{datasets]]\n").empty());
  EXPECT_FALSE(Faults("\xcf\x81 = 1\n").empty()) << "a Greek letter where a key begins";
}

}  // namespace
}  // namespace blockswap::worker
