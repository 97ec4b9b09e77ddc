// SPDX-License-Identifier: Apache-2.0
#include "worker/io/sha256.h"

#include <gtest/gtest.h>

#include "tests/worker/data/temp_directory.h"

namespace blockswap::worker {
namespace {

// The three examples of the standard, FIPS 180-4.
TEST(Sha256Test, AgreesWithTheStandard) {
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Hex(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256Test, HashesFilesInPieces) {
  const TempDirectory directory;
  const std::string content(3'000'001, 'x');
  const auto digest = Sha256OfFile(directory.Write("f", content));
  ASSERT_TRUE(digest.ok());
  EXPECT_EQ(digest->sha256, Sha256Hex(content));
  EXPECT_EQ(digest->bytes, 3'000'001);
  EXPECT_TRUE(absl::IsNotFound(Sha256OfFile(directory.Path("none")).status()));
}

}  // namespace
}  // namespace blockswap::worker
