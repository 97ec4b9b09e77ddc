// SPDX-License-Identifier: Apache-2.0
// Builds a machine and a queue job by job and asks the policy what becomes of them.
#ifndef BLOCKSWAP_TESTS_SERVER_SCHEDULER_QUEUE_FIXTURE_H_
#define BLOCKSWAP_TESTS_SERVER_SCHEDULER_QUEUE_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/scheduler/queue_policy.h"

namespace blockswap::server {

inline constexpr int64_t kGiB = int64_t{1} << 30;
inline constexpr int64_t kSecond = 1'000'000, kMinute = 60 * kSecond, kHour = 60 * kMinute;

class QueueFixture : public ::testing::Test {
 protected:
  QueueFixture() {
    state_.host.memory_bytes = 64 * kGiB;
    state_.steady_micros = kNow;
  }

  static constexpr int64_t kNow = 100 * kHour;

  void AddGpus(int count, int64_t bytes = 24 * kGiB) {
    for (int i = 0; i < count; ++i) {
      DeviceState device;
      device.name = absl::StrCat("cuda-", state_.devices.size());
      device.kind = DeviceKind::kCuda;
      device.total_bytes = device.free_bytes = bytes;
      state_.devices.push_back(device);
    }
  }
  // Sits on the device until `end_micros`.
  void Occupy(size_t device, int64_t host_bytes, int64_t end_micros, int64_t bytes = 20 * kGiB) {
    DeviceState& held = state_.devices.at(device);
    const std::string id = absl::StrCat("running-", state_.running.size());
    held.holders.push_back({id, bytes});
    held.free_bytes -= bytes;
    state_.host.memory_bytes -= host_bytes;
    state_.running.push_back({id, held.name, bytes, host_bytes, end_micros});
  }
  QueuedJob& Add(const std::string& id, int64_t device_gib = 1, int64_t host_gib = 1) {
    QueuedJob job;
    job.id = id;
    job.sequence = static_cast<int64_t>(jobs_.size()) + 1;
    job.create_micros = job.sequence * kSecond;
    job.needs.device_bytes = device_gib * kGiB;
    job.needs.host_bytes = host_gib * kGiB;
    jobs_.push_back(job);
    return jobs_.back();
  }
  std::vector<std::string> Order() const {
    std::vector<std::string> ids;
    for (const size_t i : QueueOrder(jobs_, state_.loaded_bases, options_)) {
      ids.push_back(jobs_[i].id);
    }
    return ids;
  }
  void Decide() { decisions_ = DecideQueue(jobs_, state_, options_); }
  const QueueDecision& Of(const std::string& id) const {
    for (const QueueDecision& decision : decisions_) {
      if (jobs_[decision.job].id == id) return decision;
    }
    ADD_FAILURE() << "no decision about " << id;
    return decisions_.at(0);
  }
  std::string Started(const std::string& id) const {
    return Of(id).verdict == Verdict::kStart ? Of(id).device : "";
  }
  std::string WhyOf(const std::string& id) const {
    return Of(id).verdict == Verdict::kWait ? ReasonName(Of(id).reason) : "";
  }
  std::string MessageFor(const std::string& id) const { return MessageOf(Of(id).reason); }

  QueueState state_;
  QueueOptions options_;
  std::vector<QueuedJob> jobs_;
  std::vector<QueueDecision> decisions_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_TESTS_SERVER_SCHEDULER_QUEUE_FIXTURE_H_
