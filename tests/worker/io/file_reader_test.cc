// SPDX-License-Identifier: Apache-2.0
#include "worker/io/file_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/worker/data/temp_directory.h"

namespace blockswap::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// More than one bounce buffer, a piece for each reading thread and more, no multiple of a sector.
constexpr size_t kFileBytes = 25'000'003;

std::string Pattern() {
  std::string text(kFileBytes, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 31 + i / 251);
  return text;
}

class FileReaderTest : public ::testing::Test {
 protected:
  FileReaderTest()
      : path_(directory_.Write("file", Pattern())), reader_(path_, *OpenRegularFile(path_)) {}
  std::string ReadText(int64_t offset, size_t bytes) {
    std::string text(bytes, '\0');
    const absl::Status read = reader_.Read(
        offset, absl::MakeSpan(reinterpret_cast<std::byte*>(text.data()), text.size()));
    return read.ok() ? text : read.ToString();
  }
  const TempDirectory directory_;
  const std::string path_;
  FileReader reader_;
};

class FileReaderModeTest : public FileReaderTest, public ::testing::WithParamInterface<ReadMode> {};

TEST_P(FileReaderModeTest, ReadsAnyRange) {
  reader_.SetMode(GetParam());
  const std::string all = Pattern();
  for (const int64_t offset : {0, 1, 4095, 4096, 4097, 24'999'999}) {
    for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{9000}, kFileBytes}) {
      const size_t fits = std::min(bytes, kFileBytes - static_cast<size_t>(offset));
      EXPECT_EQ(ReadText(offset, fits), all.substr(static_cast<size_t>(offset), fits))
          << offset << " + " << fits;
    }
  }
}

// F114: the file is cut while it is in use.
TEST_P(FileReaderModeTest, AFileCutWhileInUseIsDataLossThatNamesIt) {
  reader_.SetMode(GetParam());
  std::filesystem::resize_file(path_, 1'000'000);
  EXPECT_EQ(ReadText(0, 1'000'000), Pattern().substr(0, 1'000'000));
  EXPECT_THAT(ReadText(900'000, 200'000), AllOf(HasSubstr("DATA_LOSS"), HasSubstr(path_),
                                                HasSubstr("cut short"), HasSubstr("25000003")));
  EXPECT_THAT(ReadText(0, kFileBytes), AllOf(HasSubstr("DATA_LOSS"), HasSubstr("cut short")));
}

TEST_P(FileReaderModeTest, AReplacedFileIsStillTheOneThatWasOpened) {
  reader_.SetMode(GetParam());
  std::filesystem::remove(path_);
  directory_.Write("file", "another one");
  EXPECT_EQ(ReadText(100, 5000), Pattern().substr(100, 5000));
}

INSTANTIATE_TEST_SUITE_P(Modes, FileReaderModeTest,
                         ::testing::Values(ReadMode::kBuffered, ReadMode::kDirect));

TEST_F(FileReaderTest, CountsWhatItReads) {
  reader_.WillNeed(0, 4096);
  EXPECT_EQ(reader_.bytes_read(), 0);
  ReadText(0, 1000);
  ReadText(7, 24);
  EXPECT_EQ(reader_.bytes_read(), 1024);
}

TEST_F(FileReaderTest, ATrialTimesBothModesAndLeavesTheMode) {
  const ReadTrial trial = reader_.Try(1 << 20);
  EXPECT_GT(trial.buffered_bytes_per_second, 0);
  const bool has_direct = reader_.SetMode(ReadMode::kDirect) == ReadMode::kDirect;
  EXPECT_EQ(trial.direct_bytes_per_second > 0, has_direct);
  reader_.SetMode(ReadMode::kBuffered);
  EXPECT_EQ(reader_.mode(), ReadMode::kBuffered);
}

}  // namespace
}  // namespace blockswap::worker
