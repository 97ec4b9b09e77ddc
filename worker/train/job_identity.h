// SPDX-License-Identifier: Apache-2.0
// What of a job decides its result: a checkpoint may be continued only by a job that agrees in all
// of it.
#ifndef BLOCKSWAP_WORKER_TRAIN_JOB_IDENTITY_H_
#define BLOCKSWAP_WORKER_TRAIN_JOB_IDENTITY_H_

#include <map>
#include <string>

#include "worker/config/job_inspection.h"

namespace blockswap::worker {

// Named facts with printable values. Memory settings, device, threads, sampling and output are left
// out on purpose: another budget or plan gives the same bits. The number of steps counts only where
// the learning rate depends on it.
using JobIdentity = std::map<std::string, std::string>;

inline constexpr char kHostModulationFact[] = "memory.host_modulation";

JobIdentity IdentityOf(const JobInspection& job);

// "training.learning_rate is 0.001 there and 0.002 here; ..." for every fact that differs; empty
// when none does.
std::string DescribeDifference(const JobIdentity& there, const JobIdentity& here);

// For checkpoint properties and marker files: one JSON object. A text that is no such object reads
// as empty.
std::string IdentityToJson(const JobIdentity& identity);
JobIdentity IdentityFromJson(const std::string& text);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_JOB_IDENTITY_H_
