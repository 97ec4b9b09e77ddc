// SPDX-License-Identifier: Apache-2.0
#include "server/device/gpu_poller.h"

#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "offload/base/mutex.h"
#include "server/base/log.h"
#include "server/base/thread_name.h"

namespace blockswap::server {
namespace {

// At the end: long enough for a driver that is slow, not for one that hangs.
constexpr std::chrono::seconds kLastPatience{2};

std::vector<GpuFacts> Ask(Nvml& nvml) { return nvml.Gpus().value_or(std::vector<GpuFacts>()); }

}  // namespace

struct GpuPoller::State {
  std::unique_ptr<Nvml> nvml;  // used by one thread: the poller's own once it runs
  std::thread thread;
  base::Mutex mutex;
  base::CondVar changed;
  GpuAnswer answer ABSL_GUARDED_BY(mutex);
  bool stops ABSL_GUARDED_BY(mutex) = false;
  bool has_ended ABSL_GUARDED_BY(mutex) = false;
};

GpuPoller::GpuPoller(std::unique_ptr<Nvml> nvml) : state_(std::make_shared<State>()) {
  state_->nvml = std::move(nvml);
}

bool GpuPoller::has_driver() const { return state_->nvml != nullptr; }

void GpuPoller::Start(std::chrono::milliseconds period) {
  if (!has_driver() || std::exchange(is_started_, true)) return;
  {
    base::MutexLock lock(state_->mutex);
    state_->answer.asked = SteadyNow();
    state_->answer.is_answered = false;
  }
  state_->thread = std::thread([state = state_, period] { Run(state, period); });
}

void GpuPoller::Run(const std::shared_ptr<State>& state, std::chrono::milliseconds period) {
  NameThisThread("gpu-poll");
  while (true) {
    std::vector<GpuFacts> gpus = Ask(*state->nvml);
    base::MutexLock lock(state->mutex);
    state->answer.gpus = std::move(gpus);
    state->answer.is_answered = true;
    const SteadyTime next = SteadyNow() + period;
    while (!state->stops && SteadyNow() < next) state->changed.WaitUntil(state->mutex, next);
    if (state->stops) {
      state->has_ended = true;
      state->changed.SignalAll();
      return;
    }
    state->answer.asked = SteadyNow();
    state->answer.is_answered = false;
  }
}

GpuAnswer GpuPoller::Latest() {
  if (!is_started_) return {Ask(*state_->nvml), SteadyNow(), true};
  base::MutexLock lock(state_->mutex);
  return state_->answer;
}

GpuPoller::~GpuPoller() {
  if (!state_->thread.joinable()) return;
  {
    base::MutexLock lock(state_->mutex);
    state_->stops = true;
    state_->changed.SignalAll();
    const SteadyTime deadline = SteadyNow() + kLastPatience;
    while (!state_->has_ended && SteadyNow() < deadline) {
      state_->changed.WaitUntil(state_->mutex, deadline);
    }
    if (!state_->has_ended) {
      LogWarning("the GPU driver does not answer; the thread that asks it is left behind");
      // Never freed: the thread inside the hung call may use it until the process ends.
      static_cast<void>(new std::shared_ptr<State>(std::move(state_)));
      return;
    }
  }
  state_->thread.join();
}

}  // namespace blockswap::server
