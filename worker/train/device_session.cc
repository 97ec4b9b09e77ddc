// SPDX-License-Identifier: Apache-2.0
#include "worker/train/device_session.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "offload/base/status_macros.h"
#include "offload/host/link_measurement.h"
#include "offload/base/host_facts.h"
#include "worker/kernels/torch_boundary.h"
#include "worker/train/cuda_session.h"

namespace blockswap::worker {
namespace {

constexpr int64_t kTrialCopyBytes = int64_t{16}
                                    << 20;  // larger than the last-level cache's share of one core
// Half of what the link test of a device copies: every job start pays for it.
constexpr offload::LinkTrial kCardTrial{.bytes = int64_t{32} << 20, .repeats = 2};
constexpr int64_t kTrialMatrix = 256;
constexpr int kTrialRepeats = 3;

// The fastest of a few: the others met something else that ran.
template <typename Function>
double BestSeconds(const Function& function) {
  double best = 0;
  for (int i = 0; i < kTrialRepeats; ++i) {
    const absl::Time begin = absl::Now();
    function();
    const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
    if (i == 0 || seconds < best) best = seconds;
  }
  return best > 0 ? best : 1e-9;
}

double HostCopyBytesPerSecond() {
  const std::vector<std::byte> source(static_cast<size_t>(kTrialCopyBytes), std::byte{1});
  std::vector<std::byte> destination(source.size());
  return static_cast<double>(kTrialCopyBytes) /
         BestSeconds([&] { std::memcpy(destination.data(), source.data(), source.size()); });
}

// A bf16 product as the blocks compute it; the planner needs the order of magnitude, step 0 is
// measured anyway.
double MatrixFlopsPerSecond(at::Device device) {
  const HostMemoryScope host_side;
  const at::TensorOptions options = at::TensorOptions().dtype(at::kBFloat16).device(device);
  const at::Tensor left = at::ones({kTrialMatrix, kTrialMatrix}, options);
  const double flops = 2.0 * kTrialMatrix * kTrialMatrix * kTrialMatrix;
  return flops / BestSeconds([&] { at::matmul(left, left).sum().item<float>(); });
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceSession>> DeviceSession::Open(const DeviceOptions& options) {
  absl::string_view name = options.device;
  if (name == "host" || (name == "auto" && !CudaIsPresent())) {
    offload::HostDeviceOptions host = options.host;
    host.budget_bytes = options.vram_budget_bytes.value_or(0);
    BLOCKSWAP_ASSIGN_OR_RETURN(std::unique_ptr<offload::DeviceRuntime> runtime,
                               offload::HostDevice::Create(host));
    std::unique_ptr<DeviceSession> session(
        new DeviceSession(std::move(runtime), at::Device(at::kCPU)));
    session->counted_ = std::make_unique<CountedHostMemory>(&session->runtime_->ledger());
    session->given_link_.h2d_bytes_per_second = host.h2d_bytes_per_second;
    session->given_link_.d2h_bytes_per_second = host.d2h_bytes_per_second;
    session->given_link_.latency = host.latency;
    return session;
  }
  int ordinal = 0;
  if (name != "auto" &&
      !(absl::ConsumePrefix(&name, "cuda:") && absl::SimpleAtoi(name, &ordinal) && ordinal >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("device '", options.device, "' is none of auto, host, cuda:N"));
  }
  BLOCKSWAP_ASSIGN_OR_RETURN(CudaSession cuda, OpenCudaSession(ordinal, options.vram_budget_bytes));
  return std::unique_ptr<DeviceSession>(new DeviceSession(std::move(cuda.runtime), cuda.device));
}

std::string DeviceSession::description() const {
  const offload::DeviceFacts facts = runtime_->facts();
  return absl::StrCat(facts.name, " (", facts.description, ")");
}

absl::StatusOr<Machine> DeviceSession::Measure() {
  const offload::DeviceFacts facts = runtime_->facts();
  const base::HostFacts host = base::ReadHostFacts();
  Machine machine;
  machine.device_free_bytes = facts.free_bytes;
  machine.host_available_bytes = host.available_bytes;
  machine.lockable_bytes = host.lockable_bytes;
  machine.copies_need_pinned_memory = runtime_->copies_need_pinned_memory();
  machine.link = given_link_;
  if (device_.is_cpu()) {
    const double copy = HostCopyBytesPerSecond();
    offload::LinkProfile& link = machine.link;
    if (link.h2d_bytes_per_second == 0) link.h2d_bytes_per_second = copy;
    if (link.d2h_bytes_per_second == 0) link.d2h_bytes_per_second = copy;
    link.pageable_bytes_per_second = link.h2d_bytes_per_second;
  } else {
    BLOCKSWAP_ASSIGN_OR_RETURN(const offload::LinkMeasurement measured,
                               offload::MeasureLink(runtime_.get(), kCardTrial));
    machine.link = offload::ToLinkProfile(measured);
  }
  BLOCKSWAP_RETURN_IF_ERROR(RunContained([&]() -> absl::Status {
    machine.compute_flops_per_second = MatrixFlopsPerSecond(device_);
    return absl::OkStatus();
  }));
  return machine;
}

int64_t DeviceSession::AvailableBytes() {
  const offload::MemorySnapshot memory = runtime_->ledger().Snapshot();
  const int64_t bytes = runtime_->facts().free_bytes + memory.total_bytes + framework_bytes();
  return memory.budget_bytes > 0 ? std::min(bytes, memory.budget_bytes) : bytes;
}

void DeviceSession::Refresh(const offload::SwapStats& held, Machine* machine) {
  const base::HostFacts host = base::ReadHostFacts();
  machine->device_free_bytes = AvailableBytes();
  machine->host_available_bytes = host.available_bytes + held.host_master_bytes;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  machine->lockable_bytes =
      std::min(host.lockable_bytes, kMost - held.pinned_bytes) + held.pinned_bytes;
}

void DeviceSession::SetBudget(std::optional<int64_t> budget_bytes) {
  runtime_->ledger().SetBudget(budget_bytes.value_or(0));
}

std::optional<int64_t> DeviceSession::budget_bytes() {
  const int64_t bytes = runtime_->ledger().Snapshot().budget_bytes;
  return bytes > 0 ? std::optional<int64_t>(bytes) : std::nullopt;
}

int64_t DeviceSession::peak_bytes() {
  return runtime_->ledger().Snapshot().total_peak_bytes + framework_bytes_peak();
}

void DeviceSession::ResetPeaks() {
  runtime_->ledger().ResetPeaks();
  if (!device_.is_cpu()) CudaResetPeaks(device_);
}

void DeviceSession::ReleaseCached() {
  if (!device_.is_cpu()) CudaReleaseCached(device_);
}

int64_t DeviceSession::framework_bytes() const {
  return device_.is_cpu() ? 0 : CudaFrameworkBytes(device_);
}

std::optional<AllocatorReport> DeviceSession::allocator() const {
  if (device_.is_cpu()) return std::nullopt;
  return CudaAllocator(device_);
}

int64_t DeviceSession::framework_bytes_peak() const {
  return device_.is_cpu() ? 0 : CudaFrameworkBytesPeak(device_);
}

}  // namespace blockswap::worker
