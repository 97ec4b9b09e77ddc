// SPDX-License-Identifier: Apache-2.0
#include "offload/base/proc_file.h"

#include <gtest/gtest.h>

#include <fstream>

namespace blockswap::base {
namespace {

std::string WriteFile(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + name;
  std::ofstream(path) << text;
  return path;
}

TEST(ReadProcBytesTest, FindsTheExactKey) {
  const std::string path =
      WriteFile("meminfo", "MemTotal:  100 kB\nMemAvailableX: 1 kB\nMemAvailable:\t 42 kB\n");
  EXPECT_EQ(ReadProcBytes(path, "MemAvailable"), 42 * 1024);
  EXPECT_EQ(ReadProcBytes(path, "MemTotal"), 100 * 1024);
}

TEST(ReadProcBytesTest, AnswersNothingForWhatIsNotThere) {
  const std::string path = WriteFile("meminfo2", "MemTotal: many kB\nShort\n");
  EXPECT_EQ(ReadProcBytes(path, "MemAvailable"), std::nullopt);
  EXPECT_EQ(ReadProcBytes(path, "MemTotal"), std::nullopt);
  EXPECT_EQ(ReadProcBytes(path + ".absent", "MemTotal"), std::nullopt);
}

TEST(ReadProcBytesTest, ReadsTheRunningKernel) {
  EXPECT_GT(ReadProcBytes("/proc/meminfo", "MemTotal").value_or(0), 0);
}

TEST(ReadFirstWordTest, ReadsALimit) {
  EXPECT_EQ(ReadFirstWord(WriteFile("limit", "max\n")), "max");
  EXPECT_EQ(ReadFirstWord(WriteFile("empty", "\n")), std::nullopt);
  EXPECT_EQ(ReadFirstWord(::testing::TempDir() + "absent"), std::nullopt);
}

}  // namespace
}  // namespace blockswap::base
