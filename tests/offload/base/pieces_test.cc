// SPDX-License-Identifier: Apache-2.0
#include "offload/base/pieces.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "offload/base/mutex.h"

namespace blockswap::base {
namespace {

TEST(PiecesTest, EachByteIsInOnePiece) {
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, kPieceBytes - 1, kPieceBytes, kPieceBytes + 1,
                              9 * kPieceBytes + 7}) {
    Mutex mutex;
    std::map<int64_t, int64_t> pieces;
    const absl::Status done = ForPieces(bytes, [&](int64_t offset, int64_t size) {
      MutexLock lock(mutex);
      EXPECT_TRUE(pieces.emplace(offset, size).second) << offset;
      return absl::OkStatus();
    });
    EXPECT_TRUE(done.ok()) << done;
    int64_t end = 0;
    for (const auto& [offset, size] : pieces) {
      EXPECT_EQ(offset, end);
      EXPECT_EQ(offset % kPieceBytes, 0);
      EXPECT_GT(size, 0);
      end += size;
    }
    EXPECT_EQ(end, bytes);
  }
}

TEST(PiecesTest, OnePieceIsWorkedOnByTheCaller) {
  std::set<std::thread::id> threads;
  ASSERT_TRUE(ForPieces(kPieceBytes, [&threads](int64_t, int64_t) {
                threads.insert(std::this_thread::get_id());
                return absl::OkStatus();
              }).ok());
  EXPECT_EQ(threads, std::set<std::thread::id>{std::this_thread::get_id()});
}

TEST(PiecesTest, TheFirstFailureByOffsetIsTold) {
  for (int repeat = 0; repeat < 50; ++repeat) {
    const absl::Status done = ForPieces(8 * kPieceBytes, [](int64_t offset, int64_t) {
      const int64_t piece = offset / kPieceBytes;
      return piece < 3 ? absl::OkStatus() : absl::DataLossError(absl::StrCat("piece ", piece));
    });
    EXPECT_EQ(done, absl::DataLossError("piece 3"));
  }
}

}  // namespace
}  // namespace blockswap::base
