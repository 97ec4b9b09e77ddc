// SPDX-License-Identifier: Apache-2.0
// The link, and the ring with products instead of blocks.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "offload/base/status_macros.h"
#include "offload/host/link_measurement.h"
#include "offload/plan/planner.h"
#include "offload/swap/block_swapper.h"
#include "tests/gpu/gpu_checks.h"
#include "worker/kernels/torch_boundary.h"
#include "worker/train/device_session.h"

namespace blockswap::gpu {
namespace {

constexpr int kBlocks = 24;
constexpr int kStreamed = 16;
constexpr int kRing = 2;
constexpr int kBackwardOverForward = 2;
constexpr int kSteps = 4;
constexpr double kHostLinkBytesPerSecond = 256e6;

struct Sizes {
  int64_t block_bytes, matrix;
};

Sizes SizesFor(const CheckOptions& options) {
  return options.tiny ? Sizes{int64_t{256} << 10, 64} : Sizes{int64_t{128} << 20, 2048};
}

absl::StatusOr<std::unique_ptr<worker::DeviceSession>> Open(const CheckOptions& options) {
  worker::DeviceOptions device;
  device.device = options.device;
  // The host's memory as a link would be as fast as its compute is slow.
  device.host.h2d_bytes_per_second = device.host.d2h_bytes_per_second = kHostLinkBytesPerSecond;
  return worker::DeviceSession::Open(device);
}

// One kernel sequence of a block. Its operands are the stand-in's own: what counts is the time.
class Products {
 public:
  Products(at::Device device, int64_t matrix)
      : left_(at::ones({matrix, matrix}, at::TensorOptions().dtype(at::kBFloat16).device(device))),
        out_(at::empty_like(left_)) {}

  void Run(int times) {
    for (int i = 0; i < times; ++i) at::mm_out(out_, left_, left_);
  }
  // Waits for everything on the compute stream.
  void Finish() { out_.flatten()[0].item<float>(); }

 private:
  at::Tensor left_, out_;
};

offload::PlanRequest Request(const Sizes& sizes, int streamed, double copy_seconds,
                             double product_seconds, int products) {
  offload::PlanRequest request;
  for (int i = 0; i < kBlocks; ++i) {
    offload::BlockProfile block;
    block.name = absl::StrCat("blocks.", i);
    block.tensors = {{0, sizes.block_bytes}};
    block.bytes = sizes.block_bytes;
    block.forward_flops = 1;
    request.model.blocks.push_back(std::move(block));
  }
  request.model.max_blocks_to_swap = kBlocks;
  request.model.forward_flops = kBlocks;
  request.model.backward_over_forward = kBackwardOverForward;
  request.device_free_bytes = request.host_available_bytes = int64_t{1} << 40;
  request.lockable_bytes = int64_t{1} << 40;
  request.link.h2d_bytes_per_second = static_cast<double>(sizes.block_bytes) / copy_seconds;
  request.link.d2h_bytes_per_second = request.link.h2d_bytes_per_second;
  request.compute_flops_per_second = 1 / (product_seconds * products);
  request.constraints.blocks_to_swap = streamed;
  request.constraints.ring_size = kRing;
  request.constraints.checkpointing = offload::Toggle::kOn;
  return request;
}

absl::Status Visit(offload::BlockSwapper* swapper, int block, offload::Direction direction,
                   int products, Products* compute) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const offload::BlockLease lease, swapper->Acquire(block, direction));
  compute->Run(products);
  return absl::OkStatus();
}

absl::Status Step(offload::BlockSwapper* swapper, int products, Products* compute) {
  BLOCKSWAP_RETURN_IF_ERROR(swapper->BeginPass(offload::PassKind::kTraining));
  for (int block = 0; block < kBlocks; ++block) {
    BLOCKSWAP_RETURN_IF_ERROR(
        Visit(swapper, block, offload::Direction::kForward, products, compute));
  }
  for (int block = kBlocks - 1; block >= 0; --block) {
    BLOCKSWAP_RETURN_IF_ERROR(Visit(swapper, block, offload::Direction::kBackward,
                                    kBackwardOverForward * products, compute));
  }
  return absl::OkStatus();
}

// Mean seconds of a step in a row of steps, after one to warm up.
absl::StatusOr<double> TimeSteps(worker::DeviceSession* session,
                                 const offload::PlanRequest& request, int products,
                                 Products* compute) {
  BLOCKSWAP_ASSIGN_OR_RETURN(offload::SwapPlan plan, offload::Plan(request));
  const offload::BlockReader reader = [](int block, absl::Span<std::byte> destination) {
    std::memset(destination.data(), block + 1, destination.size());
    return absl::OkStatus();
  };
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::unique_ptr<offload::BlockSwapper> swapper,
                             offload::BlockSwapper::Create(session->runtime(), std::move(plan),
                                                           request.model.blocks, reader));
  BLOCKSWAP_RETURN_IF_ERROR(Step(swapper.get(), products, compute));
  compute->Finish();
  const absl::Time begin = absl::Now();
  for (int i = 0; i < kSteps; ++i) {
    BLOCKSWAP_RETURN_IF_ERROR(Step(swapper.get(), products, compute));
  }
  compute->Finish();
  return absl::ToDoubleSeconds(absl::Now() - begin) / kSteps;
}

double ProductSeconds(Products* compute, int times) {
  compute->Run(times);
  compute->Finish();
  const absl::Time begin = absl::Now();
  compute->Run(times);
  compute->Finish();
  return absl::ToDoubleSeconds(absl::Now() - begin) / times;
}

// `wanted`: copies of all streamed blocks over all compute, as near as whole products get to it.
absl::StatusOr<Report> CheckRatio(worker::DeviceSession* session, const Sizes& sizes, double wanted,
                                  double copy_seconds, double product_seconds, Products* compute) {
  const double compute_seconds = 2 * kStreamed * copy_seconds / wanted;
  const int products = std::max(
      1, static_cast<int>(
             compute_seconds / (kBlocks * (1 + kBackwardOverForward)) / product_seconds + 0.5));
  const auto request = [&](int streamed) {
    return Request(sizes, streamed, copy_seconds, product_seconds, products);
  };
  BLOCKSWAP_ASSIGN_OR_RETURN(const double resident,
                             TimeSteps(session, request(0), products, compute));
  BLOCKSWAP_ASSIGN_OR_RETURN(const double ring,
                             TimeSteps(session, request(kStreamed), products, compute));
  const double copies = (kStreamed - kRing) * copy_seconds;
  const double forward = resident / (1 + kBackwardOverForward);
  const double bound = std::max(forward, copies) + std::max(resident - forward, copies);
  Report row;
  row["ratio"] = 2 * kStreamed * copy_seconds / resident;
  row["products_per_block"] = products;
  row["resident_seconds"] = resident;
  row["ring_seconds"] = ring;
  row["bound_seconds"] = bound;
  row["of_bound"] = bound / ring;
  return row;
}

}  // namespace

absl::StatusOr<Report> CheckLink(const CheckOptions& options) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const auto session, Open(options));
  offload::LinkTrial trial;
  if (options.tiny) trial.bytes = int64_t{1} << 20;
  BLOCKSWAP_ASSIGN_OR_RETURN(const offload::LinkMeasurement measured,
                             offload::MeasureLink(session->runtime(), trial));
  Report report;
  report["device"] = session->description();
  report["h2d_bytes_per_second"] = measured.h2d_bytes_per_second;
  report["d2h_bytes_per_second"] = measured.d2h_bytes_per_second;
  report["duplex_factor"] = measured.duplex_factor;
  report["pageable_bytes_per_second"] = measured.pageable_bytes_per_second;
  report["latency_seconds"] = absl::ToDoubleSeconds(measured.latency);
  report["ok"] = true;
  return report;
}

absl::StatusOr<Report> CheckRing(const CheckOptions& options) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const auto session, Open(options));
  const Sizes sizes = SizesFor(options);
  offload::LinkTrial trial;
  trial.bytes = std::min(trial.bytes, sizes.block_bytes);
  BLOCKSWAP_ASSIGN_OR_RETURN(const offload::LinkMeasurement link,
                             offload::MeasureLink(session->runtime(), trial));
  const double copy_seconds = static_cast<double>(sizes.block_bytes) / link.h2d_bytes_per_second;
  Report report;
  report["blocks"] = kBlocks;
  report["streamed"] = kStreamed;
  report["ring"] = kRing;
  report["block_bytes"] = sizes.block_bytes;
  report["cases"] = Report::array();
  BLOCKSWAP_RETURN_IF_ERROR(worker::RunContained([&]() -> absl::Status {
    Products compute(session->device(), sizes.matrix);
    const double product_seconds = ProductSeconds(&compute, 20);
    for (const double wanted : {0.5, 1.0, 2.0}) {
      BLOCKSWAP_ASSIGN_OR_RETURN(Report row, CheckRatio(session.get(), sizes, wanted, copy_seconds,
                                                        product_seconds, &compute));
      report["cases"].push_back(std::move(row));
    }
    return absl::OkStatus();
  }));
  report["ok"] = true;
  return report;
}

}  // namespace blockswap::gpu
