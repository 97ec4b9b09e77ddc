// SPDX-License-Identifier: Apache-2.0
#include "worker/train/training_state.h"

#include <array>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "offload/base/status_macros.h"
#include "worker/io/safetensors.h"
#include "worker/kernels/device_memory.h"
#include "worker/train/failure.h"

namespace blockswap::worker {
namespace {

struct NamedBuffer {
  const char* name;
  at::Tensor values;
};

std::array<NamedBuffer, 3> Buffers(const Adapter& adapter, const AdamW& optimizer) {
  return {NamedBuffer{"parameters", adapter.parameters()},
          NamedBuffer{"first_moment", optimizer.first_moment()},
          NamedBuffer{"second_moment", optimizer.second_moment()}};
}

absl::Span<const std::byte> BytesOf(const at::Tensor& host_values) {
  return absl::MakeConstSpan(reinterpret_cast<const std::byte*>(host_values.data_ptr<float>()),
                             static_cast<size_t>(host_values.numel()) * sizeof(float));
}

absl::Status ReadCounter(const std::map<std::string, std::string>& properties, const char* name,
                         int64_t* value) {
  const auto found = properties.find(name);
  if (found == properties.end() || !absl::SimpleAtoi(found->second, value)) {
    return absl::DataLossError(
        absl::StrCat("checkpoint property ", name, " is missing or no number"));
  }
  return absl::OkStatus();
}

}  // namespace

std::map<std::string, std::string> ToProperties(const CheckpointProperties& properties) {
  const TrainingCounters& counters = properties.counters;
  return {{"step", absl::StrCat(counters.step)},
          {"epoch", absl::StrCat(counters.epoch)},
          {"updates", absl::StrCat(counters.updates)},
          {"steps_left_out", absl::StrCat(counters.steps_left_out)},
          {"left_out_in_a_row", absl::StrCat(counters.left_out_in_a_row)},
          {"zero_gradients_in_a_row", absl::StrCat(counters.zero_gradients_in_a_row)},
          {"total_steps", absl::StrCat(properties.total_steps)},
          {"threads", absl::StrCat(properties.threads)},
          {"device", properties.device},
          {"identity", IdentityToJson(properties.identity)}};
}

absl::StatusOr<CheckpointProperties> FromProperties(
    const std::map<std::string, std::string>& properties) {
  CheckpointProperties result;
  TrainingCounters& counters = result.counters;
  int64_t threads = 0;
  const std::pair<const char*, int64_t*> fields[] = {
      {"step", &counters.step},
      {"epoch", &counters.epoch},
      {"updates", &counters.updates},
      {"steps_left_out", &counters.steps_left_out},
      {"left_out_in_a_row", &counters.left_out_in_a_row},
      {"zero_gradients_in_a_row", &counters.zero_gradients_in_a_row},
      {"total_steps", &result.total_steps},
      {"threads", &threads}};
  for (const auto& [name, value] : fields)
    BLOCKSWAP_RETURN_IF_ERROR(ReadCounter(properties, name, value));
  result.threads = static_cast<int>(threads);
  if (const auto device = properties.find("device"); device != properties.end())
    result.device = device->second;
  if (const auto identity = properties.find("identity"); identity != properties.end()) {
    result.identity = IdentityFromJson(identity->second);
  }
  return result;
}

int64_t StateBytes(const Adapter& adapter) {
  constexpr int64_t kHeaderBytes = 4096;
  return 3 * adapter.parameters().numel() * static_cast<int64_t>(sizeof(float)) + kHeaderBytes;
}

absl::Status WriteTrainingState(const std::string& directory, const Adapter& adapter,
                                const AdamW& optimizer) {
  const HostMemoryScope host_side;
  std::vector<at::Tensor> held;
  std::vector<TensorToWrite> tensors;
  for (const NamedBuffer& buffer : Buffers(adapter, optimizer)) {
    held.push_back(buffer.values.to(at::kCPU).contiguous());
    if (!at::isfinite(held.back()).all().item<bool>()) {
      return WithFailure(absl::InternalError(absl::StrCat(
                             "no checkpoint written: ", buffer.name,
                             " holds values that are not finite; lower training.learning_rate")),
                         ExitCode::kNumerics, "NONFINITE_STATE");
    }
    tensors.push_back({buffer.name, StoredType::kF32, {held.back().numel()}, BytesOf(held.back())});
  }
  return WriteSafetensors(directory + "/" + kStateFile, tensors,
                          {{"format", "blockswap training state 1"}});
}

absl::Status ReadTrainingState(const std::string& directory, const Adapter& adapter,
                               AdamW* optimizer) {
  const HostMemoryScope host_side;
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::shared_ptr<SafetensorsFile> file,
                             SafetensorsFile::Open(directory + "/" + kStateFile));
  for (const NamedBuffer& buffer : Buffers(adapter, *optimizer)) {
    const auto found = file->tensors().find(buffer.name);
    const int64_t count = buffer.values.numel();
    if (found == file->tensors().end() || found->second.type != StoredType::kF32 ||
        found->second.shape != std::vector<int64_t>{count}) {
      return absl::DataLossError(absl::StrCat(file->path(), ": ", buffer.name,
                                              " is missing or is not ", count, " values of F32"));
    }
    const absl::Span<const std::byte> bytes = file->bytes(found->second);
    const at::Tensor stored = at::from_blob(const_cast<std::byte*>(bytes.data()), {count},
                                            at::TensorOptions().dtype(at::kFloat));
    buffer.values.copy_(stored);
  }
  return absl::OkStatus();
}

}  // namespace blockswap::worker
