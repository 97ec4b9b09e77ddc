// SPDX-License-Identifier: Apache-2.0
// Base weights wherever they lie: one safetensors file, an index of shards, or a diffusers
// directory, under one set of names.
#ifndef BLOCKSWAP_WORKER_IO_CHECKPOINT_SOURCE_H_
#define BLOCKSWAP_WORKER_IO_CHECKPOINT_SOURCE_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/config/train_config.h"
#include "worker/io/fp8_scaled.h"
#include "worker/io/safetensors.h"

namespace blockswap::worker {

// Thread safety: safe, immutable.
class CheckpointSource {
 public:
  // `weights` is a .safetensors file, a *.safetensors.index.json, or a directory with config.json.
  // `config_path` (may be empty) names config.json for the first two. One common prefix
  // (model.diffusion_model., diffusion_model., model., net., transformer.) is stripped; a mixture
  // of prefixed and unprefixed names is an InvalidArgument of three lines with counts and two
  // examples.
  static absl::StatusOr<std::shared_ptr<CheckpointSource>> Open(const std::string& weights,
                                                                const std::string& config_path);

  struct Tensor {
    const SafetensorsFile* file = nullptr;
    TensorEntry entry;
  };
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  // config.json's text, or empty.
  const std::string& config_json() const { return config_json_; }
  const std::string& stripped_prefix() const { return stripped_prefix_; }
  const std::string& path() const { return path_; }
  int64_t total_bytes() const { return total_bytes_; }

  // Writes tensor `name` as `dtype`, row major, to `destination` (exactly count * size bytes): a
  // plain copy when the stored type is the same, else an exact widening or a round-to-nearest-even
  // narrowing (F32, F16, BF16); E4M3 codes are widened, times the scales beside them where there
  // are any. NotFound, InvalidArgument (size, type).
  absl::Status Read(const std::string& name, Dtype dtype, absl::Span<std::byte> destination) const;
  // The scales of weight `name`, musubi's `.scale_weight`; null where there are none.
  const Tensor* FindFp8Scale(const std::string& name) const;
  // Writes the codes and scales of `name` as they are stored, or made of its plain values, as
  // `format` says. NotFound, InvalidArgument.
  absl::Status ReadFp8(const std::string& name, const Fp8Format& format,
                       absl::Span<std::byte> codes, absl::Span<std::byte> scales) const;

  // Says that tensor `name` will be read soon.
  void WillNeed(const std::string& name) const;
  // Bytes read from the files so far, headers included.
  int64_t bytes_read() const;
  // Times reads through and past the page cache once and takes the faster for all that follow. For
  // weights that are read again at each use. REQUIRES: nobody reads meanwhile.
  void ChooseReadMode();
  // What ChooseReadMode took and why, and the rate it measured; empty and 0 before.
  const std::string& read_mode_text() const { return read_mode_text_; }
  double file_bytes_per_second() const { return file_bytes_per_second_; }
  // 64 hex digits that change with any of the files: device, inode, size, time of the last change
  // and header of each.
  absl::StatusOr<std::string> Identity() const;

 private:
  CheckpointSource() = default;
  absl::StatusOr<const Tensor*> Find(const std::string& name) const;
  // `scale` is null for a plain cast.
  absl::Status ReadDequantised(const Tensor& tensor, const Tensor* scale, Dtype dtype,
                               absl::Span<std::byte> destination) const;

  std::string path_, config_json_, stripped_prefix_;
  std::vector<std::shared_ptr<SafetensorsFile>> files_;
  std::map<std::string, Tensor> tensors_;
  int64_t total_bytes_ = 0;
  double file_bytes_per_second_ = 0;
  std::string read_mode_text_;
};

int64_t DtypeBytes(Dtype dtype);
StoredType ToStoredType(Dtype dtype);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_IO_CHECKPOINT_SOURCE_H_
