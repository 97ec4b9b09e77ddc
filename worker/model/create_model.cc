// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "offload/base/status_macros.h"
#include "worker/kernels/device_memory.h"
#include "worker/kernels/torch_boundary.h"
#include "worker/model/dtype.h"
#include "worker/model/host_modulation.h"
#include "worker/model/model.h"
#include "worker/model/qwen_image.h"

namespace blockswap::worker {
namespace {

absl::StatusOr<at::Tensor> ReadTensor(const TensorSpec& spec, Dtype dtype,
                                      const CheckpointSource& source, at::Device device) {
  const at::TensorOptions options = at::TensorOptions().dtype(ToScalarType(dtype));
  // On the host device the tensor is read straight into its charged memory; elsewhere through an
  // exempt copy.
  const auto read = [&](at::Tensor tensor) {
    return source.Read(spec.name, dtype,
                       absl::MakeSpan(static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()));
  };
  if (device.is_cpu()) {
    const MemoryScope scope(offload::MemoryTag::kEdgeWeights);
    at::Tensor tensor = at::empty(spec.shape, options);
    BLOCKSWAP_RETURN_IF_ERROR(read(tensor));
    return tensor;
  }
  const HostMemoryScope host_side;
  at::Tensor staging = at::empty(spec.shape, options);
  BLOCKSWAP_RETURN_IF_ERROR(read(staging));
  return staging.to(device);
}

absl::StatusOr<std::unique_ptr<Model>> CreateQwenImage(const ModelDescription& description,
                                                       const CheckpointSource& source,
                                                       at::Device device) {
  QwenImageEdge edge;
  const auto tensors = edge.all();
  if (description.edge_tensors.size() != tensors.size()) {
    return absl::InternalError(
        absl::StrCat("qwen_image is described with ", description.edge_tensors.size(),
                     " tensors outside the blocks, its forward needs ", tensors.size()));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    BLOCKSWAP_ASSIGN_OR_RETURN(
        *tensors[i], ReadTensor(description.edge_tensors[i], description.dtype, source, device));
  }
  std::unique_ptr<HostModulation> host_modulation;
  if (description.host_modulation) {
    // On the host device the compute threads have the cores already: one helper, and the block
    // that waits helps itself.
    const int threads = device.is_cpu() ? 1 : at::get_num_threads();
    BLOCKSWAP_ASSIGN_OR_RETURN(host_modulation,
                               HostModulation::Create(description, source, threads));
  }
  return std::make_unique<QwenImageModel>(description.qwen_image,
                                          static_cast<int>(description.blocks.size()),
                                          std::move(edge), std::move(host_modulation));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> CreateModel(const ModelDescription& description,
                                                   const CheckpointSource& source,
                                                   at::Device device) {
  if (description.family != "qwen_image") {
    return absl::UnimplementedError(absl::StrCat("no forward for the architecture '",
                                                 description.family,
                                                 "' yet; there is one for qwen_image"));
  }
  absl::StatusOr<std::unique_ptr<Model>> model = absl::InternalError("not created");
  BLOCKSWAP_RETURN_IF_ERROR(RunContained([&] {
    model = CreateQwenImage(description, source, device);
    return model.status();
  }));
  return model;
}

}  // namespace blockswap::worker
