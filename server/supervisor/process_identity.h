// SPDX-License-Identifier: Apache-2.0
// Tells one process from a later one with the same pid.
#ifndef BLOCKSWAP_SERVER_SUPERVISOR_PROCESS_IDENTITY_H_
#define BLOCKSWAP_SERVER_SUPERVISOR_PROCESS_IDENTITY_H_

#include <chrono>
#include <cstdint>
#include <string>

namespace blockswap::server {

// Clock ticks between boot and the start of `pid`; 0 when there is no such process.
int64_t ProcessStartTime(int64_t pid);
// Changes with every boot of the machine.
std::string BootId();

// That process is running and belongs to the session that `leader` opened.
bool IsInSession(int64_t pid, int64_t start_time, const std::string& boot_id, int64_t leader);

enum class OrphanFate { kWasGone, kKilled, kStillThere };

// Kills the process group of a worker that an earlier server left behind, if pid, start time and
// boot id all still fit, and waits for its end.
OrphanFate KillOrphan(int64_t pid, int64_t start_time, const std::string& boot_id,
                      std::chrono::milliseconds patience);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SUPERVISOR_PROCESS_IDENTITY_H_
