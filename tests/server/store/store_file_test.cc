// SPDX-License-Identifier: Apache-2.0
#include "server/store/store_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/store/schema.h"
#include "tests/server/testing/temporary_directory.h"

namespace blockswap::server {
namespace {

namespace fs = std::filesystem;

class StoreFileTest : public ::testing::Test {
 protected:
  TemporaryDirectory directory_;
  const std::string path_ = StoreFileOf(directory_.path());
};

TEST_F(StoreFileTest, ANewStoreIsWholeAndNothingLiesBesideIt) {
  // Of a start that was cut off.
  std::ofstream(path_ + ".new") << "half of a store";
  ASSERT_TRUE(PrepareStoreFile(path_).ok());
  int files = 0;
  for (const auto& entry : fs::directory_iterator(directory_.path())) {
    EXPECT_EQ(entry.path(), path_);
    ++files;
  }
  EXPECT_EQ(files, 1);
  const auto check = CheckStoreFile(path_);
  ASSERT_TRUE(check.ok()) << check.status();
  EXPECT_TRUE(check->problems.empty());
  EXPECT_EQ(check->schema_version, CurrentSchemaVersion());
  // There now: left alone.
  const auto time = fs::last_write_time(path_);
  EXPECT_TRUE(PrepareStoreFile(path_).ok());
  EXPECT_EQ(fs::last_write_time(path_), time);
}

TEST_F(StoreFileTest, AnEmptyFileAndALogWithoutItsStoreAreRefusedAndLeft) {
  std::ofstream(path_ + "-wal") << "a log";
  EXPECT_EQ(PrepareStoreFile(path_).code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(fs::exists(path_));
  std::ofstream(path_).flush();
  EXPECT_EQ(PrepareStoreFile(path_).code(), absl::StatusCode::kDataLoss);
  fs::remove(path_ + "-wal");
  const absl::Status empty = PrepareStoreFile(path_);
  EXPECT_EQ(empty.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(absl::StrContains(empty.message(), path_));
  EXPECT_EQ(fs::file_size(path_), 0u);
}

TEST_F(StoreFileTest, ACopyIsWholeAndReplacesAnEarlierOne) {
  ASSERT_TRUE(PrepareStoreFile(path_).ok());
  auto database = Database::Open(path_, /*read_only=*/false);
  ASSERT_TRUE(database.ok()) << database.status();
  const std::string copy = path_ + ".v1.bak";
  std::ofstream(copy) << "of a migration that was cut off";
  std::ofstream(copy + ".partial") << "so is this";
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE((*database)->Execute(absl::StrCat("PRAGMA user_version=", 70 + round)).ok());
    const absl::Status copied = CopyStore(**database, copy);
    ASSERT_TRUE(copied.ok()) << copied;
    EXPECT_FALSE(fs::exists(copy + ".partial"));
    const auto check = CheckStoreFile(copy);
    ASSERT_TRUE(check.ok()) << check.status();
    EXPECT_TRUE(check->problems.empty());
    EXPECT_EQ(check->schema_version, 70 + round);
  }
}

TEST_F(StoreFileTest, CheckTellsWhatIsNoStore) {
  EXPECT_EQ(CheckStoreFile(path_).status().code(), absl::StatusCode::kNotFound);
  std::ofstream(path_).flush();
  EXPECT_FALSE(CheckStoreFile(path_)->problems.empty());
  std::ofstream(path_) << std::string(8192, 'x');
  const auto check = CheckStoreFile(path_);
  ASSERT_TRUE(check.ok()) << check.status();
  EXPECT_FALSE(check->problems.empty());
}

TEST_F(StoreFileTest, OnlyDamageGetsARemedy) {
  const absl::Status damage = WithRemedy(absl::DataLossError("page 7 is torn"), path_);
  EXPECT_EQ(damage.code(), absl::StatusCode::kDataLoss);
  for (const std::string& said :
       {std::string("page 7 is torn"), path_, std::string("--check-store"), std::string(".bak")}) {
    EXPECT_TRUE(absl::StrContains(damage.message(), said)) << damage;
  }
  const absl::Status other = absl::AbortedError("held");
  EXPECT_EQ(WithRemedy(other, path_), other);
}

}  // namespace
}  // namespace blockswap::server
