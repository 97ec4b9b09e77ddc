// SPDX-License-Identifier: Apache-2.0
#include "worker/io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "tests/worker/data/temp_directory.h"

namespace blockswap::worker {
namespace {

using ::testing::HasSubstr;

std::string WithLength(uint64_t length, const std::string& rest) {
  std::string file(8, '\0');
  memcpy(file.data(), &length, sizeof(length));
  return file + rest;
}

std::string GoodFile() {
  const std::string header = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  return WithLength(header.size(), header + "wxyz");
}

std::string ErrorOf(const std::string& path) {
  const auto file = SafetensorsFile::Open(path);
  if (file.ok()) return "opened";
  return file.status().ToString();
}

TEST(SafetensorsFileTest, MapsTheBytesOfATensor) {
  const TempDirectory directory;
  const auto file = SafetensorsFile::Open(directory.Write("f.safetensors", GoodFile()));
  ASSERT_TRUE(file.ok()) << file.status();
  const TensorEntry& entry = (*file)->tensors().at("a");
  const auto bytes = (*file)->bytes(entry);
  EXPECT_EQ(absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "wxyz");
  (*file)->Forget(entry);
  EXPECT_EQ(static_cast<char>((*file)->bytes(entry)[0]), 'w');
}

// F114: mounts on which files cannot be mapped.
TEST(SafetensorsFileTest, AFileThatCannotBeMappedIsReadInstead) {
  const TempDirectory directory;
  const MapFile no_such_device = [](int, int64_t) -> const std::byte* {
    errno = ENODEV;
    return nullptr;
  };
  const auto file =
      SafetensorsFile::Open(directory.Write("f.safetensors", GoodFile()), no_such_device);
  ASSERT_TRUE(file.ok()) << file.status();
  const TensorEntry& entry = (*file)->tensors().at("a");
  const auto bytes = (*file)->bytes(entry);
  EXPECT_EQ(absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "wxyz");
  (*file)->Forget(entry);
  EXPECT_EQ(static_cast<char>((*file)->bytes(entry)[3]), 'z');
}

TEST(SafetensorsFileTest, OpeningReadsTheHeaderAloneAndMapsNothing) {
  const TempDirectory directory;
  const MapFile never = [](int, int64_t) -> const std::byte* {
    ADD_FAILURE() << "mapped";
    return nullptr;
  };
  const std::string good = GoodFile();
  const auto file = SafetensorsFile::Open(directory.Write("f.safetensors", good), never);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto header_bytes = static_cast<int64_t>(good.size() - 4);
  EXPECT_EQ((*file)->reader().bytes_read(), header_bytes - 8 + 16);
  std::string tensor(2, '\0');
  ASSERT_TRUE((*file)
                  ->Read((*file)->tensors().at("a"),
                         absl::MakeSpan(reinterpret_cast<std::byte*>(tensor.data()), 2), 1)
                  .ok());
  EXPECT_EQ(tensor, "xy");
}

// F042: trailing bytes and a missing byte are refused; the one reader is behind every use of a
// file.
TEST(SafetensorsFileTest, RefusesTrailingAndMissingBytes) {
  const TempDirectory directory;
  const std::string good = GoodFile();
  EXPECT_THAT(ErrorOf(directory.Write("plus1", good + "x")),
              HasSubstr("1 bytes after the last tensor \"a\" belong to no tensor"));
  EXPECT_THAT(ErrorOf(directory.Write("plus4k", good + std::string(4096, '\0'))),
              HasSubstr("4096 bytes after the last tensor"));
  EXPECT_THAT(ErrorOf(directory.Write("cut", good.substr(0, good.size() - 1))),
              HasSubstr("the file is cut short"));
}

// F043: the length in the first eight bytes, before anything is allocated for it.
TEST(SafetensorsFileTest, ChecksTheHeaderLengthFirst) {
  const TempDirectory directory;
  const auto error = [&](uint64_t length, const std::string& rest) {
    return ErrorOf(directory.Write("f", WithLength(length, rest)));
  };
  EXPECT_THAT(error(0, "{}"), HasSubstr("does not start with"));
  EXPECT_THAT(error(1, "{}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error(7, "{}"), HasSubstr("cut short"));
  EXPECT_THAT(error(100'000'000, "{}"), HasSubstr("its header takes 100000000 bytes"));
  EXPECT_THAT(error(100'000'001, "{}"), HasSubstr("at most 100000000 are read"));
  EXPECT_THAT(error(uint64_t{1} << 40, "{}"), HasSubstr("at most 100000000 are read"));
  EXPECT_THAT(error(~uint64_t{0}, "{}"), HasSubstr("at most 100000000 are read"));
  EXPECT_EQ(error(2, "{}"), "opened");
  EXPECT_THAT(ErrorOf(directory.Write("empty", "")), HasSubstr("is empty"));
  EXPECT_THAT(ErrorOf(directory.Write("short", "abc")), HasSubstr("3 bytes"));
}

TEST(SafetensorsFileTest, RefusesPicklesByContent) {
  const TempDirectory directory;
  const std::string zip = std::string("PK\x03\x04", 4) + std::string(100, 'x');
  const std::string bare = "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j" + std::string(100, 'x');
  for (const std::string& content : {zip, bare}) {
    EXPECT_THAT(ErrorOf(directory.Write("model.safetensors", content)),
                HasSubstr("only safetensors files are read"));
  }
}

TEST(SafetensorsFileTest, AcceptsAHeaderWhoseLengthLooksLikeAPickle) {
  const TempDirectory directory;
  std::string header = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  header.append(0x0280 - header.size(), ' ');  // little-endian: 80 02, as a pickle starts
  EXPECT_EQ(ErrorOf(directory.Write("f", WithLength(header.size(), header + "wxyz"))), "opened");
}

// Row 34 of the fault list: nothing but a regular file is opened, and nothing blocks.
TEST(SafetensorsFileTest, RefusesWhatIsNoRegularFile) {
  const TempDirectory directory;
  ASSERT_EQ(mkfifo(directory.Path("fifo").c_str(), 0600), 0);
  EXPECT_THAT(ErrorOf(directory.Path("fifo")), HasSubstr("is not a regular file but a FIFO"));
  EXPECT_THAT(ErrorOf("/dev/zero"), HasSubstr("is not a regular file but a device"));
  EXPECT_THAT(ErrorOf(directory.path()), HasSubstr("is not a regular file but a directory"));
  EXPECT_TRUE(absl::IsNotFound(SafetensorsFile::Open(directory.Path("none")).status()));
}

}  // namespace
}  // namespace blockswap::worker
