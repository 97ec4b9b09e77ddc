// SPDX-License-Identifier: Apache-2.0
#include "worker/train/weights_loader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "offload/base/byte_size.h"
#include "offload/base/host_facts.h"
#include "offload/base/status_macros.h"
#include "worker/config/shared_masters_key.h"
#include "worker/family/family.h"

namespace blockswap::worker {
namespace {

using base::FormatByteSize;

bool StaysInFile(const offload::BlockPlacement& block) {
  return block.residence == offload::Residence::kStreamed && block.tier == offload::HostTier::kFile;
}

}  // namespace

void MeasureFileTier(const JobInspection& job, Machine* machine) {
  int64_t masters = 0;
  for (const offload::BlockProfile& block : job.profile.blocks) masters += block.bytes;
  const int64_t room = std::min(machine->host_available_bytes,
                                job.config.memory.host_budget_bytes.value_or(base::kNoLimit));
  if (masters <= room) return;
  if (job.weights->file_bytes_per_second() == 0) job.weights->ChooseReadMode();
  machine->link.file_bytes_per_second = job.weights->file_bytes_per_second();
}

int64_t FileTierBytes(const offload::SwapPlan& plan,
                      const std::vector<offload::BlockProfile>& blocks) {
  int64_t bytes = 0;
  for (size_t i = 0; i < plan.blocks.size(); ++i) {
    if (StaysInFile(plan.blocks[i])) bytes += blocks[i].bytes;
  }
  return bytes;
}

WeightsLoader::WeightsLoader(const JobInspection* job, LoadOptions options)
    : job_(job), options_(std::move(options)) {
  base::MutexLock lock(mutex_);
  stays_in_file_.resize(job->profile.blocks.size());
}

void WeightsLoader::Prepare(const offload::SwapPlan& plan) {
  locked_before_ = base::ReadHostFacts().locked_bytes;
  trainer_ = std::this_thread::get_id();
  to_load_.clear();
  for (size_t i = 0; i < plan.blocks.size(); ++i) {
    to_load_.push_back(!StaysInFile(plan.blocks[i]));
    if (to_load_.back()) total_bytes_ += job_->profile.blocks[i].bytes;
  }
  if (!options_.masters_fds.empty()) OpenShared();
  if (std::any_of(plan.blocks.begin(), plan.blocks.end(), StaysInFile)) {
    if (job_->weights->file_bytes_per_second() == 0) job_->weights->ChooseReadMode();
    notes_.push_back(
        absl::StrCat("blocks of the file tier are read ", job_->weights->read_mode_text()));
  }
  // The disk works while memory is taken and locked.
  ExpectFrom(0);
}

void WeightsLoader::ExpectFrom(int block) {
  const int num_blocks = static_cast<int>(to_load_.size());
  while (block < num_blocks && !to_load_[static_cast<size_t>(block)]) ++block;
  if (block >= num_blocks || (shared_ != nullptr && shared_->IsReady(block))) return;
  WillNeed(block);
}

void WeightsLoader::WillNeed(int block) {
  for (const TensorSpec& tensor : job_->model.blocks[static_cast<size_t>(block)].tensors) {
    if (!tensor.on_host) job_->weights->WillNeed(tensor.name);
  }
}

void WeightsLoader::OpenShared() {
  const absl::StatusOr<std::string> key =
      SharedMastersKey(job_->config, *job_->weights, job_->model);
  if (key.ok() && key->empty()) return;
  absl::Status status = key.status();
  if (status.ok()) {
    std::vector<int64_t> sizes;
    for (const offload::BlockProfile& block : job_->profile.blocks) sizes.push_back(block.bytes);
    for (const int fd : options_.masters_fds) {
      auto shared = offload::SharedMasters::Open(fd, *key, sizes);
      status = shared.status();
      if (!shared.ok()) continue;  // for the job settled otherwise
      shared_ = *std::move(shared);
      break;
    }
  }
  if (!status.ok()) {
    notes_.push_back(absl::StrCat("weights are not shared with other jobs: ", status.message()));
  }
}

absl::Status WeightsLoader::Read(int block, absl::Span<std::byte> destination) {
  const auto index = static_cast<size_t>(block);
  const bool loading =
      std::this_thread::get_id() == trainer_ && !finished_.load(std::memory_order_relaxed);
  if (loading) ExpectFrom(block + 1);
  BLOCKSWAP_RETURN_IF_ERROR(ReadPackedBlock(*job_->weights, job_->model.blocks[index],
                                            job_->profile.blocks[index], job_->model.dtype,
                                            destination));
  if (finished_.load(std::memory_order_relaxed)) {
    ReadAhead(block);
  } else {
    NoteProgress(static_cast<int64_t>(destination.size()));
  }
  return absl::OkStatus();
}

void WeightsLoader::NoteProgress(int64_t bytes) {
  // The staging thread already reads what stays in the file.
  if (std::this_thread::get_id() != trainer_) return;
  done_bytes_ = std::min(total_bytes_, done_bytes_ + bytes);
  if (options_.progress != nullptr) options_.progress(done_bytes_, total_bytes_);
}

void WeightsLoader::ReadAhead(int block) {
  int next = block;
  {
    base::MutexLock lock(mutex_);
    stays_in_file_[static_cast<size_t>(block)] = true;
    const int step = block >= last_block_ ? 1 : -1;
    last_block_ = block;
    const int end = step > 0 ? static_cast<int>(stays_in_file_.size()) : -1;
    for (next += step; next != end && !stays_in_file_[static_cast<size_t>(next)];) next += step;
    if (next == end) return;
  }
  WillNeed(next);
}

void WeightsLoader::Finish(int64_t booked_bytes) {
  finished_.store(true, std::memory_order_relaxed);
  if (options_.progress != nullptr) options_.progress(total_bytes_, total_bytes_);
  kernel_locked_bytes_ = base::ReadHostFacts().locked_bytes - locked_before_;
  if (kernel_locked_bytes_ != booked_bytes) {
    notes_.push_back(absl::StrCat("page-locked host memory: booked ", booked_bytes,
                                  " bytes, the kernel counts ", kernel_locked_bytes_));
  }
  if (shared_ == nullptr) return;
  for (const std::string& note : shared_->notes()) notes_.push_back(note);
  notes_.push_back(
      absl::StrCat("weights shared with other jobs: ", FormatByteSize(shared_->filled_bytes()),
                   " read for all, ", FormatByteSize(shared_->found_bytes()), " found in memory"));
}

int64_t WeightsLoader::shared_bytes() const {
  return shared_ == nullptr ? 0 : shared_->filled_bytes() + shared_->found_bytes();
}

std::vector<std::string> WeightsLoader::TakeNotes() { return std::exchange(notes_, {}); }

}  // namespace blockswap::worker
