// SPDX-License-Identifier: Apache-2.0
#include "worker/train/base_training.h"

#include <ATen/ATen.h>

#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "offload/base/status_macros.h"
#include "worker/io/atomic_file.h"
#include "worker/io/safetensors.h"
#include "worker/kernels/device_memory.h"
#include "worker/model/dtype.h"
#include "worker/optimizer/gradient_norm.h"
#include "worker/train/adapter_metadata.h"
#include "worker/train/failure.h"
#include "worker/train/training_state.h"

namespace blockswap::worker {
namespace {

absl::Span<const std::byte> BytesOf(const at::Tensor& values) {
  return absl::MakeConstSpan(static_cast<const std::byte*>(values.const_data_ptr()),
                             values.nbytes());
}

absl::Span<std::byte> MutableBytesOf(const at::Tensor& values) {
  return absl::MakeSpan(static_cast<std::byte*>(values.mutable_data_ptr()), values.nbytes());
}

absl::Status NotFinite(const std::string& what, const std::string& name) {
  return WithFailure(absl::InternalError(absl::StrCat("no ", what, " written: ", name,
                                                      " holds values that are not finite; lower "
                                                      "training.learning_rate")),
                     ExitCode::kNumerics, "NONFINITE_STATE");
}

std::map<std::string, std::string> ModelMetadata(const JobInspection& job,
                                                 const TrainingMoment& moment) {
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
  for (const auto& [key, value] : AdapterMetadata(job, moment)) {
    if (!absl::StartsWith(key, "ss_network_")) metadata[key] = value;
  }
  std::string& architecture = metadata["modelspec.architecture"];
  architecture = std::string(absl::StripSuffix(architecture, "/lora"));
  return metadata;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BaseTraining>> BaseTraining::Create(const JobInspection* job,
                                                                   Model* model,
                                                                   offload::BlockSwapper* swapper,
                                                                   offload::DeviceRuntime* runtime,
                                                                   at::Device device) {
  std::unique_ptr<BaseTraining> training(new BaseTraining(job, model, swapper));
  BLOCKSWAP_RETURN_IF_ERROR(training->ReadMasters());
  const bool lock = runtime->copies_need_pinned_memory() &&
                    job->config.memory.pinned_memory != offload::PinPolicy::kNever;
  BLOCKSWAP_ASSIGN_OR_RETURN(
      training->gradients_,
      BaseGradients::Create(runtime, &training->units_, job->model.dtype, device, lock));
  model->TrainEdges(training->gradients_->edges());
  training->thread_ = std::make_unique<UpdateThread>(
      static_cast<int>(training->units_.size()), [raw = training.get()](int unit) {
        raw->StepUnit(unit);
        raw->RoundBlock(unit - 1, raw->copies_[static_cast<size_t>(unit - 1)]);
        return absl::OkStatus();
      });
  return training;
}

absl::Status BaseTraining::ReadMasters() {
  const HostMemoryScope host_side;
  for (const BaseUnit& unit : units_) {
    const at::Tensor flat = at::zeros({unit.elements}, at::TensorOptions().dtype(at::kFloat));
    for (size_t i = 0; i < unit.tensors.size(); ++i) {
      const at::Tensor part = flat.narrow(0, unit.offsets[i], ElementsOf(unit.tensors[i]));
      BLOCKSWAP_RETURN_IF_ERROR(
          job_->weights->Read(unit.tensors[i].name, Dtype::kFloat32, MutableBytesOf(part)));
    }
    masters_.push_back(flat);
    optimizers_.emplace_back(flat, job_->config.training.adamw);
  }
  return absl::OkStatus();
}

absl::StatusOr<double> BaseTraining::GradientNorm() {
  BLOCKSWAP_RETURN_IF_ERROR(FinishUpdate());
  BLOCKSWAP_RETURN_IF_ERROR(gradients_->Finish());
  double squares = 0;
  for (size_t unit = 0; unit < units_.size(); ++unit)
    squares += SumOfSquares(gradients_->sum(static_cast<int>(unit)));
  return std::sqrt(squares);
}

void BaseTraining::StepUnit(int unit) {
  const HostMemoryScope host_side;
  const at::Tensor& sum = gradients_->sum(unit);
  ClipByNorm(sum, norm_, max_norm_);
  optimizers_[static_cast<size_t>(unit)].Step(sum, learning_rate_);
}

absl::Status BaseTraining::Update(double norm, double max_norm, double learning_rate) {
  BLOCKSWAP_RETURN_IF_ERROR(FinishUpdate());
  norm_ = norm, max_norm_ = max_norm, learning_rate_ = learning_rate;
  for (int block = 0; block < num_blocks(); ++block) {
    BLOCKSWAP_ASSIGN_OR_RETURN(copies_[static_cast<size_t>(block)], swapper_->MutableMaster(block));
  }
  first_unpublished_ = 0;
  StepUnit(0);
  PublishEdges();
  thread_->Start(/*first=*/1);
  return absl::OkStatus();
}

absl::Status BaseTraining::AwaitWeights(int block) {
  // Those that are done beyond it go up ahead of their visit.
  while (first_unpublished_ < num_blocks() &&
         (first_unpublished_ <= block || thread_->IsDone(first_unpublished_ + 1))) {
    BLOCKSWAP_RETURN_IF_ERROR(thread_->Await(first_unpublished_ + 1));
    BLOCKSWAP_RETURN_IF_ERROR(swapper_->MasterChanged(first_unpublished_));
    ++first_unpublished_;
  }
  return absl::OkStatus();
}

absl::Status BaseTraining::FinishUpdate() { return AwaitWeights(num_blocks() - 1); }

void BaseTraining::PublishEdges() {
  const HostMemoryScope host_side;
  const std::vector<at::Tensor> edges = model_->edge_tensors();
  for (size_t i = 0; i < edges.size(); ++i) {
    // Rounded on the host: nothing is allocated on the device.
    edges[i].copy_(
        gradients_->View(masters_[0], 0, static_cast<int>(i)).to(edges[i].scalar_type()));
  }
}

void BaseTraining::RoundBlock(int block, absl::Span<std::byte> copy) const {
  const HostMemoryScope host_side;
  const auto index = static_cast<size_t>(block);
  const offload::BlockProfile& profile = job_->profile.blocks[index];
  const BaseUnit& unit = units_[index + 1];
  const at::TensorOptions options = at::TensorOptions().dtype(ToScalarType(job_->model.dtype));
  for (size_t i = 0; i < unit.tensors.size(); ++i) {
    const at::Tensor rounded =
        at::from_blob(copy.data() + profile.tensors[i].offset, unit.tensors[i].shape, options);
    rounded.copy_(gradients_->View(masters_[index + 1], block + 1, static_cast<int>(i)));
  }
}

absl::Status BaseTraining::PublishBlock(int block) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const absl::Span<std::byte> copy, swapper_->MutableMaster(block));
  RoundBlock(block, copy);
  return swapper_->MasterChanged(block);
}

std::vector<BaseTraining::NamedBuffer> BaseTraining::StateBuffers() const {
  std::vector<NamedBuffer> buffers;
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    const std::string& name = units_[unit].name;
    buffers.push_back({"parameters." + name, masters_[unit]});
    buffers.push_back({"first_moment." + name, optimizers_[unit].first_moment()});
    buffers.push_back({"second_moment." + name, optimizers_[unit].second_moment()});
  }
  return buffers;
}

int64_t BaseTraining::StateBytes() const {
  int64_t bytes = 0;
  for (const NamedBuffer& buffer : StateBuffers()) {
    constexpr int64_t kHeaderBytesPerTensor = 256;
    bytes += static_cast<int64_t>(buffer.values.nbytes()) + kHeaderBytesPerTensor;
  }
  return bytes;
}

absl::Status BaseTraining::WriteState(const std::string& directory) {
  BLOCKSWAP_RETURN_IF_ERROR(FinishUpdate());
  std::vector<TensorToWrite> tensors;
  for (const NamedBuffer& buffer : StateBuffers()) {
    if (!std::isfinite(SumOfSquares(buffer.values))) return NotFinite("checkpoint", buffer.name);
    tensors.push_back(
        {buffer.name, StoredType::kF32, {buffer.values.numel()}, BytesOf(buffer.values)});
  }
  return WriteSafetensors(absl::StrCat(directory, "/", kStateFile), tensors,
                          {{"format", "blockswap base training state 1"}});
}

absl::Status BaseTraining::ReadState(const std::string& directory, int64_t updates) {
  const HostMemoryScope host_side;
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::shared_ptr<SafetensorsFile> file,
                             SafetensorsFile::Open(absl::StrCat(directory, "/", kStateFile)));
  for (const NamedBuffer& buffer : StateBuffers()) {
    const auto found = file->tensors().find(buffer.name);
    const int64_t count = buffer.values.numel();
    if (found == file->tensors().end() || found->second.type != StoredType::kF32 ||
        found->second.shape != std::vector<int64_t>{count}) {
      return absl::DataLossError(absl::StrCat(file->path(), ": ", buffer.name,
                                              " is missing or is not ", count, " values of F32"));
    }
    const absl::Span<const std::byte> stored = file->bytes(found->second);
    std::copy(stored.begin(), stored.end(), MutableBytesOf(buffer.values).begin());
    file->Forget(found->second);
  }
  for (AdamW& optimizer : optimizers_) optimizer.set_updates(updates);
  PublishEdges();
  for (int block = 0; block < num_blocks(); ++block) BLOCKSWAP_RETURN_IF_ERROR(PublishBlock(block));
  return absl::OkStatus();
}

absl::Status BaseTraining::WriteResult(const TrainingMoment& moment, const std::string& path) {
  BLOCKSWAP_RETURN_IF_ERROR(FinishUpdate());
  const std::string& prefix = job_->weights->stripped_prefix();
  const StoredType type = ToStoredType(job_->config.output.save_precision);
  std::vector<TensorToWrite> tensors;
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    const BaseUnit& of = units_[unit];
    if (!std::isfinite(SumOfSquares(masters_[unit]))) return NotFinite("model", of.name);
    for (size_t i = 0; i < of.tensors.size(); ++i) {
      const at::Tensor values =
          gradients_->View(masters_[unit], static_cast<int>(unit), static_cast<int>(i));
      tensors.push_back({absl::StrCat(prefix, of.tensors[i].name), type, of.tensors[i].shape,
                         BytesOf(values), StoredType::kF32});
    }
  }
  BLOCKSWAP_RETURN_IF_ERROR(WriteSafetensors(path, tensors, ModelMetadata(*job_, moment)));
  if (job_->weights->config_json().empty()) return absl::OkStatus();
  return WriteFileAtomically(absl::StrCat(absl::StripSuffix(path, ".safetensors"), ".config.json"),
                             job_->weights->config_json());
}

}  // namespace blockswap::worker
