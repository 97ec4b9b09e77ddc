// SPDX-License-Identifier: Apache-2.0
#include "worker/sampler/sample_gallery.h"

#include <filesystem>
#include <memory>

#include <ATen/ATen.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "offload/base/status_macros.h"
#include "worker/io/safetensors.h"
#include "worker/sampler/picture.h"

namespace blockswap::worker {
namespace {

std::string TensorName(size_t prompt) { return absl::StrFormat("latent_%02d", prompt); }

std::vector<Picture> DrawRow(const std::vector<at::Tensor>& latents_CHW, int64_t scale) {
  std::vector<Picture> row;
  for (const at::Tensor& latent : latents_CHW) row.push_back(DrawLatent(latent, scale));
  return row;
}

// A picture of numbers that are none would be black, and look like a result.
absl::Status CheckFinite(const std::vector<at::Tensor>& latents_CHW) {
  for (size_t i = 0; i < latents_CHW.size(); ++i) {
    const int64_t bad = latents_CHW[i].isfinite().logical_not().sum().item<int64_t>();
    if (bad == 0) continue;
    return absl::DataLossError(absl::StrCat("the sample of prompt ", i + 1, " has ", bad, " of ",
                                            latents_CHW[i].numel(),
                                            " values that are not finite numbers"));
  }
  return absl::OkStatus();
}

}  // namespace

bool SampleGallery::can_draw() const { return HasPixelDecoder(model_->latent_channels); }

std::string SampleGallery::RoundFile(int64_t step, const char* extension) const {
  return absl::StrFormat("%s/step-%08d.%s", directory_, step, extension);
}

bool SampleGallery::HasRound(int64_t step) const {
  std::error_code error;
  return std::filesystem::exists(RoundFile(step, "safetensors"), error);
}

absl::StatusOr<std::string> SampleGallery::AddRound(int64_t step,
                                                    const std::vector<at::Tensor>& latents_CHW) {
  BLOCKSWAP_RETURN_IF_ERROR(CheckFinite(latents_CHW));
  std::vector<at::Tensor> held;
  std::vector<TensorToWrite> tensors;
  for (size_t i = 0; i < latents_CHW.size(); ++i) {
    held.push_back(latents_CHW[i].contiguous());
    const at::Tensor& latent = held.back();
    tensors.push_back(
        {TensorName(i), StoredType::kF32, latent.sizes().vec(),
         absl::MakeConstSpan(reinterpret_cast<const std::byte*>(latent.data_ptr<float>()),
                             static_cast<size_t>(latent.numel()) * sizeof(float))});
  }
  const std::string latents_file = RoundFile(step, "safetensors");
  BLOCKSWAP_RETURN_IF_ERROR(
      WriteSafetensors(latents_file, tensors, {{"step", absl::StrCat(step)}}));
  if (!can_draw()) return latents_file;
  const std::string picture_file = RoundFile(step, "png");
  BLOCKSWAP_RETURN_IF_ERROR(
      WritePng(ArrangeSheet({DrawRow(latents_CHW, model_->vae_scale)}), picture_file));
  return picture_file;
}

absl::StatusOr<std::vector<at::Tensor>> SampleGallery::ReadRound(int64_t step) const {
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::shared_ptr<SafetensorsFile> file,
                             SafetensorsFile::Open(RoundFile(step, "safetensors")));
  std::vector<at::Tensor> latents_CHW;
  for (const auto& [name, entry] : file->tensors()) {  // names sort in prompt order
    if (entry.type != StoredType::kF32 || entry.shape.size() != 3) {
      return absl::DataLossError(absl::StrCat(file->path(), ": ", name, " is no latent"));
    }
    const absl::Span<const std::byte> bytes = file->bytes(entry);
    latents_CHW.push_back(at::from_blob(const_cast<std::byte*>(bytes.data()), entry.shape,
                                        at::TensorOptions().dtype(at::kFloat))
                              .clone());
  }
  return latents_CHW;
}

absl::StatusOr<std::string> SampleGallery::WriteSheet(int64_t step) const {
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::vector<at::Tensor> before, ReadRound(0));
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::vector<at::Tensor> after, ReadRound(step));
  const std::string path = directory_ + "/sheet.png";
  BLOCKSWAP_RETURN_IF_ERROR(WritePng(
      ArrangeSheet({DrawRow(before, model_->vae_scale), DrawRow(after, model_->vae_scale)}), path));
  return path;
}

}  // namespace blockswap::worker
