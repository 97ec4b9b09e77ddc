// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/probe_tensors.h"

#include <ATen/ATen.h>

#include <array>
#include <cstring>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "offload/base/status_macros.h"
#include "worker/io/safetensors.h"

namespace blockswap::worker {
namespace {

// Far above any real grid, low enough that products of three cannot overflow.
constexpr int64_t kMaxSide = 1 << 16;
// A dimension that the file decides.
constexpr int64_t kAny = -1;

std::string ShapeText(absl::Span<const int64_t> shape) {
  return absl::StrCat("[",
                      absl::StrJoin(shape, ", ",
                                    [](std::string* out, int64_t size) {
                                      absl::StrAppend(out,
                                                      size == kAny ? "any" : absl::StrCat(size));
                                    }),
                      "]");
}

class InputFile {
 public:
  explicit InputFile(std::shared_ptr<SafetensorsFile> file) : file_(std::move(file)) {}

  bool Has(const std::string& name) const { return file_->tensors().count(name) > 0; }

  absl::StatusOr<at::Tensor> Read(const std::string& name, at::ScalarType type,
                                  std::vector<int64_t> shape) const {
    const auto found = file_->tensors().find(name);
    if (found == file_->tensors().end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("input '", name, "' is missing in ", file_->path()));
    }
    const TensorEntry& entry = found->second;
    const StoredType stored = type == at::kLong ? StoredType::kI64 : StoredType::kF32;
    if (entry.type != stored) {
      return absl::InvalidArgumentError(absl::StrCat("input '", name, "' has type ",
                                                     Text(StoredTypeName(entry.type)), ", ",
                                                     Text(StoredTypeName(stored)), " is needed"));
    }
    bool fits = entry.shape.size() == shape.size();
    for (size_t i = 0; fits && i < shape.size(); ++i) {
      fits = shape[i] == kAny ? entry.shape[i] > 0 : entry.shape[i] == shape[i];
    }
    if (!fits) {
      return absl::InvalidArgumentError(absl::StrCat("input '", name, "' has shape ",
                                                     ShapeText(entry.shape), ", ", ShapeText(shape),
                                                     " is needed"));
    }
    at::Tensor tensor = at::empty(entry.shape, at::TensorOptions().dtype(type));
    const absl::Span<const std::byte> bytes = file_->bytes(entry);
    std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
    return tensor;
  }

  absl::Status RefuseUnknown(const std::set<std::string>& known) const {
    for (const auto& [name, entry] : file_->tensors()) {
      if (known.count(name) > 0) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("input '", name, "' of ", file_->path(),
                       " is not known; there are: ", absl::StrJoin(known, ", ")));
    }
    return absl::OkStatus();
  }

 private:
  static std::string Text(absl::string_view view) { return std::string(view.data(), view.size()); }

  std::shared_ptr<SafetensorsFile> file_;
};

absl::StatusOr<std::vector<std::array<int64_t, 3>>> ReadImageShapes(const InputFile& file,
                                                                    int64_t batch, int64_t tokens) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const at::Tensor shapes,
                             file.Read("img_shapes", at::kLong, {batch, kAny, 3}));
  if (!shapes.eq(shapes.narrow(0, 0, 1)).all().item<bool>()) {
    return absl::InvalidArgumentError(
        "input 'img_shapes' differs between samples, it must be the same for all");
  }
  std::vector<std::array<int64_t, 3>> images;
  int64_t sum = 0;
  for (int64_t i = 0; i < shapes.size(1); ++i) {
    const at::Tensor row = shapes.select(0, 0).select(0, i);
    const int64_t* const sides = row.const_data_ptr<int64_t>();
    for (int axis = 0; axis < 3; ++axis) {
      if (sides[axis] >= 1 && sides[axis] <= kMaxSide) continue;
      return absl::InvalidArgumentError(absl::StrCat("input 'img_shapes' has side ", sides[axis],
                                                     " in image ", i, ", between 1 and ", kMaxSide,
                                                     " is needed"));
    }
    images.push_back({sides[0], sides[1], sides[2]});
    sum += sides[0] * sides[1] * sides[2];
  }
  if (sum != tokens) {
    return absl::InvalidArgumentError(absl::StrCat("input 'img_shapes' describes ", sum,
                                                   " tokens, 'hidden_states' has ", tokens));
  }
  return images;
}

absl::StatusOr<at::Tensor> ReadTextMask(const InputFile& file, int64_t batch, int64_t text_tokens) {
  BLOCKSWAP_ASSIGN_OR_RETURN(
      at::Tensor mask, file.Read("encoder_hidden_states_mask", at::kLong, {batch, text_tokens}));
  const bool binary = mask.eq(0).logical_or(mask.eq(1)).all().item<bool>();
  // Ones first: no token may be followed by a larger one.
  const bool ordered =
      text_tokens < 2 ||
      mask.narrow(1, 1, text_tokens - 1).le(mask.narrow(1, 0, text_tokens - 1)).all().item<bool>();
  if (!binary || !ordered) {
    return absl::InvalidArgumentError(
        "input 'encoder_hidden_states_mask' must be ones (text), then zeros (padding), in every "
        "row");
  }
  return mask;
}

}  // namespace

absl::StatusOr<ProbeInputs> ReadQwenImageInputs(const std::string& path,
                                                const ModelDescription& model, bool gradients) {
  BLOCKSWAP_ASSIGN_OR_RETURN(std::shared_ptr<SafetensorsFile> opened, SafetensorsFile::Open(path));
  const InputFile file(std::move(opened));
  BLOCKSWAP_RETURN_IF_ERROR(
      file.RefuseUnknown({"hidden_states", "timestep", "encoder_hidden_states",
                          "encoder_hidden_states_mask", "img_shapes", "grad_output"}));
  const QwenImageConfig& config = model.qwen_image;
  ProbeInputs inputs;
  ModelInputs& to = inputs.model;
  BLOCKSWAP_ASSIGN_OR_RETURN(to.hidden_states_BSC, file.Read("hidden_states", at::kFloat,
                                                             {kAny, kAny, config.in_channels}));
  const int64_t batch = to.hidden_states_BSC.size(0), tokens = to.hidden_states_BSC.size(1);
  BLOCKSWAP_ASSIGN_OR_RETURN(to.timestep_B, file.Read("timestep", at::kFloat, {batch}));
  BLOCKSWAP_ASSIGN_OR_RETURN(
      to.encoder_hidden_states_BTJ,
      file.Read("encoder_hidden_states", at::kFloat, {batch, kAny, config.joint_attention_dim}));
  if (file.Has("encoder_hidden_states_mask")) {
    BLOCKSWAP_ASSIGN_OR_RETURN(to.encoder_mask_BT,
                               ReadTextMask(file, batch, to.encoder_hidden_states_BTJ.size(1)));
  }
  BLOCKSWAP_ASSIGN_OR_RETURN(to.img_shapes, ReadImageShapes(file, batch, tokens));
  if (gradients) {
    BLOCKSWAP_ASSIGN_OR_RETURN(
        inputs.grad_output,
        file.Read("grad_output", at::kFloat,
                  {batch, tokens, config.patch_size * config.patch_size * config.out_channels}));
  }
  return inputs;
}

absl::Status WriteProbeOutputs(const std::string& path,
                               const std::map<std::string, at::Tensor>& tensors) {
  std::vector<at::Tensor> wide;  // keeps the bytes alive
  std::vector<TensorToWrite> writes;
  for (const auto& [name, tensor] : tensors) {
    wide.push_back(tensor.detach().to(at::kCPU, at::kFloat).contiguous());
    const at::Tensor& values = wide.back();
    writes.push_back({name, StoredType::kF32, values.sizes().vec(),
                      absl::MakeConstSpan(static_cast<const std::byte*>(values.const_data_ptr()),
                                          values.nbytes())});
  }
  return WriteSafetensors(path, writes, {});
}

}  // namespace blockswap::worker
