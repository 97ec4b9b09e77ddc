// SPDX-License-Identifier: Apache-2.0
#include "server/web/sample_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_format.h"
#include "tests/server/testing/temporary_directory.h"

namespace blockswap::server {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const std::string kPng("\x89PNG\r\n\x1a\nrest", 12);

class SampleFilesTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(Path("samples")); }
  std::string Path(const std::string& name) const { return directory_.path() + "/" + name; }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(Path(name), std::ios::binary) << text;
  }
  absl::StatusCode CodeOf(const std::string& name) const {
    return ReadSample(directory_.path(), name).status().code();
  }
  TemporaryDirectory directory_;
};

TEST_F(SampleFilesTest, ListsPicturesByStepWithTheSheetLast) {
  for (const char* name : {"samples/sheet.png", "samples/step-00000100.png",
                           "samples/step-00000020.png", "samples/step-00000020.safetensors",
                           "samples/note.txt", "samples/step-x.png", "samples/.png"}) {
    Write(name, kPng);
  }
  EXPECT_THAT(ListSamples(directory_.path()),
              ElementsAre(Field(&SampleFile::name, "step-00000020.png"),
                          Field(&SampleFile::name, "step-00000100.png"),
                          Field(&SampleFile::name, "sheet.png")));
}

TEST_F(SampleFilesTest, OfVeryManyTheNewestAreListed) {
  for (int step = 0; step < kMaxSamples + 5; ++step) {
    Write(absl::StrFormat("samples/step-%08d.png", step), kPng);
  }
  const auto files = ListSamples(directory_.path());
  ASSERT_THAT(files, SizeIs(kMaxSamples));
  EXPECT_EQ(files.front().step, 5);
}

TEST_F(SampleFilesTest, ReadsWhatIsListed) {
  Write("samples/step-00000001.png", kPng);
  const auto bytes = ReadSample(directory_.path(), "step-00000001.png");
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(*bytes, kPng);
}

TEST_F(SampleFilesTest, ADirectoryThatIsNotThereHasNone) {
  EXPECT_THAT(ListSamples(Path("nowhere")), IsEmpty());
  EXPECT_EQ(ReadSample(Path("nowhere"), "sheet.png").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(SampleFilesTest, NoOtherFileIsGivenOut) {
  Write("secret.png", kPng);
  Write("samples/step-00000001.safetensors", kPng);
  for (const char* name : {"../secret.png", "secret.png", "step-00000001.safetensors", "", ".",
                           "step-00000001.png/../../secret.png", "sheet.png\0x"}) {
    EXPECT_EQ(CodeOf(name), absl::StatusCode::kNotFound) << name;
  }
}

TEST_F(SampleFilesTest, LinksPipesAndOtherContentAreNotFound) {
  Write("secret.png", kPng);
  ASSERT_EQ(::symlink(Path("secret.png").c_str(), Path("samples/step-00000001.png").c_str()), 0);
  ASSERT_EQ(::mkfifo(Path("samples/step-00000002.png").c_str(), 0600), 0);
  Write("samples/step-00000003.png", "<script>alert(1)</script>");
  std::filesystem::create_directory(Path("samples/step-00000004.png"));
  for (const char* name :
       {"step-00000001.png", "step-00000002.png", "step-00000003.png", "step-00000004.png"}) {
    EXPECT_EQ(CodeOf(name), absl::StatusCode::kNotFound) << name;
  }
  EXPECT_THAT(ListSamples(directory_.path()),
              ElementsAre(Field(&SampleFile::name, "step-00000003.png")));
}

TEST_F(SampleFilesTest, ALinkInPlaceOfTheDirectoryIsNotFollowed) {
  std::filesystem::create_directory(Path("elsewhere"));
  Write("elsewhere/sheet.png", kPng);
  std::filesystem::remove(Path("samples"));
  ASSERT_EQ(::symlink(Path("elsewhere").c_str(), Path("samples").c_str()), 0);
  EXPECT_THAT(ListSamples(directory_.path()), IsEmpty());
  EXPECT_EQ(CodeOf("sheet.png"), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace blockswap::server
