// SPDX-License-Identifier: Apache-2.0
// What is free on the machine now and what will be when running jobs end: the ground of
// reservations.
#ifndef BLOCKSWAP_SERVER_SCHEDULER_RESERVATION_H_
#define BLOCKSWAP_SERVER_SCHEDULER_RESERVATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/scheduler/queue_state.h"
#include "server/scheduler/queued_job.h"

namespace blockswap::server {

// Kept for a job that waits for running ones to end.
struct Reservation {
  std::string job;
  size_t device = 0;
  int64_t start_micros = kNever;  // kNever: nobody knows when, but it will come
  // What others may take beyond that moment without delaying it.
  int64_t spare_host_bytes = 0, spare_bytes = 0;
  int spare_places = 0;
};

// Thread safety: none. The state it is made from must outlive it.
class MachineRoom final {
 public:
  MachineRoom(const QueueState& state, int max_jobs_per_device);

  void Take(const RunningJob& started, size_t device);
  // The job that sits on the device, or empty.
  std::string HolderOf(const std::string& device) const;
  // On the one of `devices` where the job can start soonest and nobody else has a reservation.
  // Nothing where it could not start even if every job of this server ended, or if it lacks only
  // what is not freed by their end.
  std::optional<Reservation> Reserve(const QueuedJob& job, const std::vector<size_t>& devices,
                                     const std::vector<Reservation>& taken, int64_t now_micros);

  std::vector<DeviceRoom> devices;  // as in the state
  HostRoom host;

 private:
  std::optional<Reservation> FutureOn(const QueuedJob& job, size_t device,
                                      int64_t now_micros) const;
  void SortByEnd(int64_t now_micros);

  std::vector<RunningJob> running_;
  bool is_sorted_ = false;  // by their end
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SCHEDULER_RESERVATION_H_
