// SPDX-License-Identifier: Apache-2.0
#include "server/supervisor/master_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "offload/base/master_file.h"

namespace blockswap::server {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// What a worker does: takes memory in the file.
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

}  // namespace
}  // namespace blockswap::server
