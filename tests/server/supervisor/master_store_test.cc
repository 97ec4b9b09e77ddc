// SPDX-License-Identifier: Apache-2.0
#include "server/supervisor/master_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "offload/base/master_file.h"

namespace blockswap::server {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// What a worker does: lays the file out, with a block of a MiB ready for each of `ready`.
void LayOut(const MasterStore::Use& use, const std::string& key, const std::vector<bool>& ready) {
  ASSERT_EQ(ftruncate(use.fd(), kMiB * static_cast<int64_t>(ready.size() + 1)), 0);
  base::MasterFileControl control;
  control.start = base::MasterFileStart::For(key);
  control.start.num_blocks = static_cast<uint32_t>(ready.size());
  ASSERT_EQ(pwrite(use.fd(), &control, sizeof(control), 0), static_cast<ssize_t>(sizeof(control)));
  for (size_t i = 0; i < ready.size(); ++i) {
    base::MasterFileBlock block;
    block.state = ready[i] ? base::kMasterReady : base::kMasterEmpty;
    ASSERT_EQ(pwrite(use.fd(), &block, sizeof(block),
                     static_cast<off_t>(sizeof(control) + i * sizeof(block))),
              static_cast<ssize_t>(sizeof(block)));
    if (ready[i]) {
      ASSERT_EQ(fallocate(use.fd(), 0, static_cast<off_t>(i + 1) * kMiB, kMiB), 0);
    }
  }
}

// The same without blocks that could be found.
void Fill(const MasterStore::Use& use, int64_t bytes) {
  ASSERT_EQ(ftruncate(use.fd(), bytes), 0);
  ASSERT_EQ(fallocate(use.fd(), 0, 0, bytes), 0);
}

TEST(MasterStoreTest, JobsOnTheSameWeightsGetOneFile) {
  MasterStore store(100 * kMiB);
  const MasterStore::Use first = *store.Take("a");
  const MasterStore::Use second = *store.Take("a");
  const MasterStore::Use other = *store.Take("b");
  EXPECT_EQ(first.fd(), second.fd());
  EXPECT_NE(first.fd(), other.fd());
  Fill(first, 4 * kMiB);
  EXPECT_EQ(base::MasterFileBytes(second.fd()), 4 * kMiB);
  EXPECT_EQ(store.usage().files, 2);
}

TEST(MasterStoreTest, WeightsAreKeptForTheNextWorkerWithinTheBudget) {
  MasterStore store(10 * kMiB);
  int fd = -1;
  {
    const MasterStore::Use use = *store.Take("a");
    Fill(use, 8 * kMiB);
    fd = use.fd();
    EXPECT_GE(store.usage().used_bytes, 8 * kMiB);
  }
  EXPECT_EQ(store.usage().used_bytes, 0);
  EXPECT_EQ(store.usage().unused_bytes, 8 * kMiB);
  const MasterStore::Use again = *store.Take("a");
  EXPECT_EQ(again.fd(), fd);
  EXPECT_EQ(base::MasterFileBytes(again.fd()), 8 * kMiB);
}

TEST(MasterStoreTest, WhatWasUsedLongestAgoIsClosedFirstAndWhatIsInUseNever) {
  MasterStore store(7 * kMiB);
  MasterStore::Use in_use = *store.Take("in use");
  Fill(in_use, 6 * kMiB);
  for (const char* key : {"a", "b", "a", "c"}) {
    const MasterStore::Use use = *store.Take(key);
    if (base::MasterFileBytes(use.fd()) < kMiB) Fill(use, 3 * kMiB);
  }
  // b went: a was used after it.
  EXPECT_EQ(store.usage().files, 3);
  EXPECT_EQ(store.usage().unused_bytes, 6 * kMiB);
  EXPECT_LT(base::MasterFileBytes(store.Take("b")->fd()), kMiB);
  EXPECT_EQ(base::MasterFileBytes(store.Take("a")->fd()), 3 * kMiB);
  in_use = MasterStore::Use();
  EXPECT_LE(store.usage().unused_bytes, 7 * kMiB);
}

TEST(MasterStoreTest, UnusedFilesGiveWayToWhoNeedsMemory) {
  MasterStore store(100 * kMiB);
  const MasterStore::Use in_use = *store.Take("in use");
  Fill(in_use, 2 * kMiB);
  for (const char* key : {"a", "b"}) {
    const MasterStore::Use use = *store.Take(key);
    Fill(use, 3 * kMiB);
  }
  EXPECT_EQ(store.Free(1), 3 * kMiB);
  EXPECT_EQ(store.usage().unused_bytes, 3 * kMiB);
  EXPECT_EQ(store.Free(100 * kMiB), 3 * kMiB);
  EXPECT_EQ(store.usage().files, 1);
  EXPECT_EQ(base::MasterFileBytes(in_use.fd()), 2 * kMiB);
}

TEST(MasterStoreTest, SaysWhichBlocksOfABaseAreThereAndWhetherAWorkerUsesThem) {
  MasterStore store(100 * kMiB);
  {
    const MasterStore::Use use = *store.Take("base");
    ASSERT_EQ(store.bases().size(), 1u);
    EXPECT_TRUE(store.bases()[0].ready.empty());
    LayOut(use, "base", {true, true, false, true});
    const SharedBase base = store.bases()[0];
    EXPECT_EQ(base.key, "base");
    EXPECT_EQ(base.ready, std::vector<bool>({true, true, false, true}));
    EXPECT_TRUE(base.in_use);
  }
  ASSERT_EQ(store.bases().size(), 1u);
  EXPECT_FALSE(store.bases()[0].in_use);
}

// Whatever a worker wrote there, the server reads what the file has room for.
TEST(MasterStoreTest, AFileThatClaimsMoreBlocksThanItHasIsNotBelieved) {
  MasterStore store(100 * kMiB);
  const MasterStore::Use use = *store.Take("base");
  base::MasterFileControl control;
  control.start = base::MasterFileStart::For("base");
  control.start.num_blocks = 4'000'000'000u;
  ASSERT_EQ(pwrite(use.fd(), &control, sizeof(control), 0), static_cast<ssize_t>(sizeof(control)));
  EXPECT_TRUE(store.bases()[0].ready.empty());
}

TEST(MasterStoreTest, AFileThatNobodyFilledIsNotKept) {
  MasterStore store(100 * kMiB);
  {
    const MasterStore::Use settled = *store.Take("off"), other = *store.Take("on");
    Fill(settled, kMiB);
  }
  EXPECT_EQ(store.usage().files, 1);
  EXPECT_EQ(base::MasterFileBytes(store.Take("off")->fd()), kMiB);
}

}  // namespace
}  // namespace blockswap::server
