// SPDX-License-Identifier: Apache-2.0
// What tests of the state store begin with.
#ifndef BLOCKSWAP_TESTS_SERVER_TESTING_STORE_FIXTURE_H_
#define BLOCKSWAP_TESTS_SERVER_TESTING_STORE_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "server/store/job_store.h"
#include "tests/server/testing/temporary_directory.h"

namespace blockswap::server {

// A store in a directory of its own.
class StoreFixture : public ::testing::Test {
 protected:
  void SetUp() override { Reopen(); }
  // As a server that starts again.
  void Reopen() {
    store_.reset();
    auto store = JobStore::Open(path());
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  std::string path() const { return directory_.path() + "/jobs.db"; }

  TemporaryDirectory directory_;
  std::unique_ptr<JobStore> store_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_TESTS_SERVER_TESTING_STORE_FIXTURE_H_
