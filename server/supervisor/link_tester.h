// SPDX-License-Identifier: Apache-2.0
// Has the bus of every device measured once, by a short-lived worker process, and keeps the result.
#ifndef BLOCKSWAP_SERVER_SUPERVISOR_LINK_TESTER_H_
#define BLOCKSWAP_SERVER_SUPERVISOR_LINK_TESTER_H_

#include <thread>

#include "server/device/device_table.h"
#include "server/store/job_store.h"
#include "server/supervisor/link_trial.h"
#include "server/supervisor/spawn_process.h"

namespace blockswap::server {

using LinkTesterOptions = LinkTrialOptions;

// Owns: one thread, "link-test", which ends when every device has its figures. Thread safety: safe.
// A device that cannot be measured stays without figures: plans then predict no times from its
// link.
class LinkTester final {
 public:
  LinkTester(JobStore& store, DeviceTable& devices, LinkTesterOptions options);
  ~LinkTester();  // ends a test that is under way
  LinkTester(const LinkTester&) = delete;
  LinkTester& operator=(const LinkTester&) = delete;

  // Until every device was dealt with. For tests.
  void Join();

 private:
  void Run();

  JobStore& store_;
  DeviceTable& devices_;
  const LinkTesterOptions options_;
  Pipe stop_;  // closing the writing end wakes a waiting test
  std::thread thread_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SUPERVISOR_LINK_TESTER_H_
