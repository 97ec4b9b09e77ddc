// SPDX-License-Identifier: Apache-2.0
#include "worker/kernels/host_linear_threads.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"

namespace blockswap::worker {
namespace {

// Of a 3072 wide linear about 400 KiB of weights: some ten microseconds, so that the lock is cheap
// and the last chunk of a linear is not waited for long.
constexpr int64_t kChunkFeatures = 64;

}  // namespace

HostLinearThreads::HostLinearThreads(std::vector<HostLinear> linears, int threads)
    : linears_(std::move(linears)) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { Work(); });
    pthread_setname_np(threads_.back().native_handle(), "bs-host-linear");
  }
}

HostLinearThreads::~HostLinearThreads() {
  {
    base::MutexLock lock(mutex_);
    ending_ = true;
  }
  work_.SignalAll();
  for (std::thread& thread : threads_) thread.join();
}

HostLinearThreads::Pass::Pass(HostLinearThreads* owner, std::vector<HostLinearCall> calls)
    : owner_(owner), calls_(std::move(calls)), next_feature_(calls_.size()) {
  for (const HostLinear& linear : owner_->linears_) missing_features_.push_back(linear.out);
}

std::unique_ptr<HostLinearThreads::Pass> HostLinearThreads::Start(
    std::vector<HostLinearCall> calls) {
  std::unique_ptr<Pass> pass(new Pass(this, std::move(calls)));
  {
    base::MutexLock lock(mutex_);
    passes_.push_back(pass.get());
    ++stats_.passes;
  }
  work_.SignalAll();
  return pass;
}

HostLinearThreads::Pass::~Pass() {
  base::MutexLock lock(owner_->mutex_);
  owner_->passes_.remove(this);
  while (at_work_ > 0) owner_->done_.Wait(owner_->mutex_);
}

void HostLinearThreads::Pass::Wait(int index) {
  const auto linear = static_cast<size_t>(index);
  const absl::Time begin = absl::Now();
  while (true) {
    std::optional<Chunk> chunk;
    {
      base::MutexLock lock(owner_->mutex_);
      chunk = owner_->TakeLocked(this, linear);
      while (!chunk.has_value() && missing_features_[linear] > 0) {
        owner_->done_.Wait(owner_->mutex_);
      }
      if (!chunk.has_value()) {
        owner_->stats_.waited += absl::Now() - begin;
        return;
      }
    }
    owner_->Compute(*chunk);
  }
}

HostLinearStats HostLinearThreads::stats() const {
  base::MutexLock lock(mutex_);
  return stats_;
}

std::optional<HostLinearThreads::Chunk> HostLinearThreads::TakeLocked(Pass* pass, size_t linear) {
  const int64_t first = pass->next_feature_[linear], out = linears_[linear].out;
  if (first == out) return std::nullopt;
  const int64_t last = std::min(first + kChunkFeatures, out);
  pass->next_feature_[linear] = last;
  ++pass->at_work_;
  return Chunk{pass, linear, first, last};
}

std::optional<HostLinearThreads::Chunk> HostLinearThreads::TakeNextLocked() {
  Pass* best = nullptr;
  for (Pass* pass : passes_) {
    size_t& next = pass->next_linear_;
    while (next < linears_.size() && pass->next_feature_[next] == linears_[next].out) ++next;
    if (next == linears_.size()) continue;
    if (best == nullptr || next < best->next_linear_) best = pass;
  }
  if (best == nullptr) return std::nullopt;
  return TakeLocked(best, best->next_linear_);
}

void HostLinearThreads::Compute(const Chunk& chunk) {
  const HostLinearCall& call = chunk.pass->calls_[chunk.linear];
  const absl::Time begin = absl::Now();
  HostLinearFeatures(linears_[chunk.linear], call.x, call.rows, chunk.first, chunk.last, call.y);
  // The pass may end as soon as the lock is free: it is not touched after that.
  base::MutexLock lock(mutex_);
  stats_.busy += absl::Now() - begin;
  int64_t& missing = chunk.pass->missing_features_[chunk.linear];
  missing -= chunk.last - chunk.first;
  const bool idle = --chunk.pass->at_work_ == 0;
  if (missing == 0 || idle) done_.SignalAll();
}

void HostLinearThreads::Work() {
  while (true) {
    std::optional<Chunk> chunk;
    {
      base::MutexLock lock(mutex_);
      while (!ending_ && !(chunk = TakeNextLocked()).has_value()) work_.Wait(mutex_);
      if (!chunk.has_value()) return;
    }
    Compute(*chunk);
  }
}

}  // namespace blockswap::worker
