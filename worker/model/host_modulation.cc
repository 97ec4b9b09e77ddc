// SPDX-License-Identifier: Apache-2.0
#include "worker/model/host_modulation.h"

#include <ATen/ATen.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "offload/base/status_macros.h"
#include "worker/kernels/device_memory.h"
#include "worker/model/dtype.h"

namespace blockswap::worker {
namespace {

// fp16 jobs keep these weights in fp32, which holds them exactly.
Dtype LyingType(Dtype dtype) { return dtype == Dtype::kFloat16 ? Dtype::kFloat32 : dtype; }

absl::Span<std::byte> BytesOf(std::vector<float>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(float)};
}

// The tensor's own bytes in the mapped file, when they can be read there as `dtype`.
std::optional<absl::Span<const std::byte>> WhereItLies(const CheckpointSource::Tensor& tensor,
                                                       Dtype dtype) {
  if (tensor.entry.type != ToStoredType(dtype)) return std::nullopt;
  const absl::Span<const std::byte> bytes = tensor.file->bytes(tensor.entry);
  // The format does not align tensors.
  const auto address = reinterpret_cast<uintptr_t>(bytes.data());
  if (bytes.empty() || address % static_cast<uintptr_t>(DtypeBytes(dtype)) != 0) {
    return std::nullopt;
  }
  return bytes;
}

// Widens rows of codes as the device does (DequantiseFp8).
// REQUIRES: the runs of the scales divide rows, or rows the runs.
std::function<void(int64_t, int64_t, void*)> WidenFeatures(const Fp8Format& format,
                                                           const std::byte* packed, Dtype dtype,
                                                           int64_t in) {
  // Scales of several rows (one for the whole weight, say) are used row by row.
  Fp8Format part = format;
  if (format.run % in == 0) part.run = in;
  const auto value_bytes = static_cast<size_t>(DtypeBytes(dtype));
  return [format, part, packed, dtype, in, value_bytes](int64_t first, int64_t last, void* weight) {
    auto* to = static_cast<std::byte*>(weight);
    const int64_t step = part.run == in ? 1 : last - first;
    const int64_t runs = step * in / part.run;
    for (int64_t row = first; row < last;
         row += step, to += static_cast<size_t>(in) * value_bytes) {
      const int64_t scale = row * in / format.run;
      DequantiseFp8(part, packed + row * in,
                    packed + Fp8ScaleOffset(format) + scale * StoredTypeBytes(format.scale_type),
                    ToStoredType(dtype), 0, runs, to);
    }
  };
}

}  // namespace

absl::StatusOr<std::unique_ptr<HostModulation>> HostModulation::Create(
    const ModelDescription& model, const CheckpointSource& source, int threads) {
  std::unique_ptr<HostModulation> modulation(new HostModulation);
  modulation->type_ = ToScalarType(model.dtype);
  modulation->number_ = ToScalarType(LyingType(model.dtype));
  for (size_t b = 0; b < model.blocks.size(); ++b) {
    const DescribedBlock& block = model.blocks[b];
    for (size_t slot = 0; slot < block.linears.size(); ++slot) {
      if (!block.tensors[2 * slot].on_host) continue;
      BLOCKSWAP_RETURN_IF_ERROR(modulation->Add(block, slot, LyingType(model.dtype), source));
      modulation->index_[{static_cast<int>(b), static_cast<int>(slot)}] =
          static_cast<int>(modulation->linears_.size()) - 1;
      modulation->slots_.push_back(static_cast<int>(slot));
    }
  }
  if (modulation->linears_.empty()) {
    return absl::InternalError(
        absl::StrCat(model.family, " has no linear that the host could evaluate"));
  }
  modulation->threads_ = std::make_unique<HostLinearThreads>(modulation->linears_, threads);
  return modulation;
}

absl::Status HostModulation::Add(const DescribedBlock& block, size_t slot, Dtype dtype,
                                 const CheckpointSource& source) {
  const std::string& bias = block.tensors[2 * slot + 1].name;
  HostLinear linear;
  linear.in = block.linears[slot].in_features;
  linear.out = block.linears[slot].out_features;
  linear.number = dtype == Dtype::kBFloat16 ? HostNumber::kBFloat16 : HostNumber::kFloat32;
  BLOCKSWAP_RETURN_IF_ERROR(Place(block.tensors[2 * slot], dtype, source, &linear));
  // The device adds a bias of the job's type: so is this one, then widened.
  std::vector<float> widened(static_cast<size_t>(linear.out));
  if (dtype == Dtype::kFloat32) {
    BLOCKSWAP_RETURN_IF_ERROR(source.Read(bias, dtype, BytesOf(widened)));
  } else {
    const HostMemoryScope host_side;
    at::Tensor narrow = at::empty({linear.out}, at::TensorOptions().dtype(number_));
    BLOCKSWAP_RETURN_IF_ERROR(source.Read(
        bias, dtype, absl::MakeSpan(static_cast<std::byte*>(narrow.data_ptr()), narrow.nbytes())));
    at::from_blob(widened.data(), {linear.out}, at::TensorOptions().dtype(at::kFloat))
        .copy_(narrow);
  }
  biases_.push_back(std::move(widened));
  linear.bias = biases_.back().data();
  linears_.push_back(linear);
  return absl::OkStatus();
}

absl::Status HostModulation::Place(const TensorSpec& weight, Dtype dtype,
                                   const CheckpointSource& source, HostLinear* linear) {
  TensorSpec packed = weight;
  packed.on_host = false;
  const int64_t bytes = PackedTensorBytes(packed, dtype);
  weight_bytes_ += bytes;
  if (!weight.fp8.has_value()) {
    const CheckpointSource::Tensor& tensor = source.tensors().at(weight.name);
    if (const auto lying = WhereItLies(tensor, dtype); lying.has_value()) {
      linear->weight = lying->data();
      TensorEntry& last = last_in_place_.try_emplace(tensor.file, tensor.entry).first->second;
      if (tensor.entry.offset > last.offset) last = tensor.entry;
      return absl::OkStatus();
    }
  }
  if (weight.fp8.has_value() && weight.fp8->run % linear->in != 0 &&
      linear->in % weight.fp8->run != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        weight.name, " has fp8 scales for ", weight.fp8->run,
        " values each, which divide no rows of ", linear->in, "; set memory.host_modulation: off"));
  }
  copies_.emplace_back(static_cast<size_t>(bytes));
  copied_bytes_ += bytes;
  const std::byte* const copy = copies_.back().data();
  BLOCKSWAP_RETURN_IF_ERROR(
      ReadPackedTensor(source, packed, dtype, absl::MakeSpan(copies_.back())));
  if (weight.fp8.has_value()) {
    linear->widen = WidenFeatures(*weight.fp8, copy, dtype, linear->in);
  } else {
    linear->weight = copy;
  }
  return absl::OkStatus();
}

std::unique_ptr<HostModulation::Pass> HostModulation::Start(
    const std::map<int, at::Tensor>& inputs) {
  for (const auto& [file, entry] : last_in_place_) {
    std::byte last;
    const absl::Status there = file->Read(entry, absl::MakeSpan(&last, 1), entry.bytes - 1);
    TORCH_CHECK(there.ok(), std::string(there.message()));
  }
  std::unique_ptr<Pass> pass(new Pass);
  pass->owner_ = this;
  pass->device_ = inputs.begin()->second.device();
  std::map<int, at::Tensor> wide;
  {
    const HostMemoryScope host_side;
    for (const auto& [slot, input] : inputs) {
      wide[slot] =
          input.to(at::kCPU, at::kFloat, /*non_blocking=*/false, /*copy=*/true).contiguous();
      pass->inputs_.push_back(wide[slot]);
    }
  }
  std::vector<HostLinearCall> calls;
  for (size_t i = 0; i < linears_.size(); ++i) {
    const at::Tensor& x = wide.at(slots_[i]);
    const std::vector<int64_t> sizes = {x.size(0), linears_[i].out};
    const at::TensorOptions options = at::TensorOptions().dtype(number_);
    // On the host device the rows are device memory from the start; elsewhere they are staged.
    if (pass->device_.is_cpu() && number_ == type_) {
      pass->outputs_.push_back(at::empty(sizes, options));
    } else {
      const HostMemoryScope host_side;
      pass->outputs_.push_back(at::empty(sizes, options));
    }
    calls.push_back({x.data_ptr<float>(), x.size(0), pass->outputs_.back().data_ptr()});
  }
  pass->pass_ = threads_->Start(std::move(calls));
  return pass;
}

at::Tensor HostModulation::Pass::Take(int block, int slot) {
  const int index = owner_->index_.at({block, slot});
  pass_->Wait(index);
  at::Tensor rows = std::exchange(outputs_[static_cast<size_t>(index)], at::Tensor());
  return rows.to(device_, owner_->type_);
}

}  // namespace blockswap::worker
