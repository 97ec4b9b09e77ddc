// SPDX-License-Identifier: Apache-2.0
// Loads all tensors of a checkpoint into host masters, as a job's start does, and prints one JSON
// line: bytes, seconds, peak memory. With --shared into memory of a server, which other jobs may
// use too. Used by load_time.py.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "offload/base/master_file.h"
#include "offload/base/proc_file.h"
#include "offload/base/status_macros.h"
#include "offload/device/host_device.h"
#include "offload/host/host_masters.h"
#include "worker/config/job_inspection.h"
#include "worker/config/shared_masters_key.h"
#include "worker/family/family.h"
#include "worker/io/checkpoint_source.h"
#include "worker/train/weights_loader.h"

namespace blockswap::worker {
namespace {

// "transformer_blocks.12" of "transformer_blocks.12.attn.to_q.weight"; "" for a name without
// number.
std::string BlockOf(const std::string& name) {
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
    const size_t end = name.find('.', dot + 1);
    const std::string part = name.substr(dot + 1, end - dot - 1);
    if (!part.empty() && part.find_first_not_of("0123456789") == std::string::npos) {
      return name.substr(0, end);
    }
  }
  return "";
}

// Blocks of whatever the file holds in the job's type; a family would leave out what it does not
// use.
std::vector<DescribedBlock> Blocks(const CheckpointSource& source) {
  std::map<std::string, DescribedBlock> blocks;
  for (const auto& [name, tensor] : source.tensors()) {
    if (tensor.entry.type != StoredType::kBF16 && tensor.entry.type != StoredType::kF32 &&
        tensor.entry.type != StoredType::kF16) {
      continue;
    }
    DescribedBlock& block = blocks[BlockOf(name)];
    block.name = BlockOf(name);
    block.tensors.push_back({name, tensor.entry.shape});
  }
  std::vector<DescribedBlock> list;
  for (auto& [name, block] : blocks) list.push_back(std::move(block));
  return list;
}

struct Options {
  offload::PinPolicy pin = offload::PinPolicy::kNever;
  bool shared = false;
};

// The server's part of sharing.
absl::StatusOr<LoadOptions> Shared(const JobInspection& job) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::string key,
                             SharedMastersKey(job.config, *job.weights, job.model));
  BLOCKSWAP_ASSIGN_OR_RETURN(const int fd, base::CreateMasterFile(key));
  LoadOptions options;
  options.masters_fds.push_back(fd);
  return options;
}

absl::Status Run(const std::string& path, const Options& options) {
  const absl::Time begin = absl::Now();
  JobInspection job;
  BLOCKSWAP_ASSIGN_OR_RETURN(job.weights, CheckpointSource::Open(path, ""));
  job.model.blocks = Blocks(*job.weights);
  offload::SwapPlan plan;
  std::vector<offload::MasterSpec> specs;
  for (const DescribedBlock& block : job.model.blocks) {
    job.profile.blocks.push_back(PackBlock(block, Dtype::kBFloat16));
    plan.blocks.push_back({.residence = offload::Residence::kStreamed});
    specs.push_back(
        {.bytes = job.profile.blocks.back().bytes, .block = static_cast<int>(specs.size())});
  }
  LoadOptions load;
  if (options.shared) {
    BLOCKSWAP_ASSIGN_OR_RETURN(load, Shared(job));
  }
  WeightsLoader loader(&job, load);
  loader.Prepare(plan);
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::unique_ptr<offload::HostDevice> device,
                             offload::HostDevice::Create({}));
  BLOCKSWAP_ASSIGN_OR_RETURN(
      offload::HostMasters masters,
      offload::HostMasters::Create(device.get(), specs, options.pin, {.shared = loader.shared()}));
  for (int i = 0; i < masters.size(); ++i) {
    BLOCKSWAP_RETURN_IF_ERROR(masters.Fill(i, loader.reader()));
  }
  loader.Finish(masters.locked_bytes());
  const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
  const int64_t peak = base::ReadProcBytes("/proc/self/status", "VmHWM").value_or(0);
  std::printf(
      "{\"file_bytes_read\": %lld, \"master_bytes\": %lld, \"locked_bytes\": %lld, "
      "\"seconds\": %.6f, \"peak_rss_bytes\": %lld}\n",
      static_cast<long long>(job.weights->bytes_read()), static_cast<long long>(masters.bytes()),
      static_cast<long long>(masters.locked_bytes()), seconds, static_cast<long long>(peak));
  return absl::OkStatus();
}

}  // namespace
}  // namespace blockswap::worker

int main(int argc, char** argv) {
  blockswap::worker::Options options;
  bool is_known = argc >= 2;
  for (int i = 2; i < argc; ++i) {
    if (std::strcmp(argv[i], "--pin") == 0) {
      options.pin = blockswap::offload::PinPolicy::kAuto;
    } else if (std::strcmp(argv[i], "--shared") == 0) {
      options.shared = true;
    } else {
      is_known = false;
    }
  }
  if (!is_known) {
    std::fprintf(stderr, "usage: load_weights FILE [--pin] [--shared]\n");
    return 2;
  }
  const absl::Status status = blockswap::worker::Run(argv[1], options);
  if (!status.ok()) std::fprintf(stderr, "load_weights: %s\n", status.ToString().c_str());
  return status.ok() ? EXIT_SUCCESS : EXIT_FAILURE;
}
