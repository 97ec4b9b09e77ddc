// SPDX-License-Identifier: Apache-2.0
#include "worker/io/checkpoint_source.h"

#include <errno.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "offload/base/byte_size.h"
#include "offload/base/status_macros.h"
#include "worker/io/float_conversion.h"
#include "worker/io/json_text.h"
#include "worker/io/regular_file.h"
#include "worker/io/sha256.h"
#include "worker/io/weight_files.h"

namespace blockswap::worker {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxConfigBytes = base::kMiB;
constexpr int64_t kTrialBytes = 32 * base::kMiB;
constexpr double kDirectGain = 1.2;  // the page cache serves other jobs too: leave it for a reason
constexpr int64_t kPieceBytes = 4 * base::kMiB;  // of a conversion: stays in the cache

// Longest first: "model.diffusion_model." also starts with "model.".
constexpr std::array<absl::string_view, 5> kPrefixes = {
    "model.diffusion_model.", "diffusion_model.", "transformer.", "model.", "net."};

absl::string_view PrefixOf(absl::string_view name) {
  for (const absl::string_view prefix : kPrefixes) {
    if (absl::StartsWith(name, prefix)) return prefix;
  }
  return "";
}

std::string TwoOf(const std::vector<std::string>& names) {
  std::vector<std::string> quoted;
  for (size_t i = 0; i < std::min<size_t>(2, names.size()); ++i) quoted.push_back(Quoted(names[i]));
  return absl::StrJoin(quoted, " and ");
}

// What quantised files have beside plain tensors, by the end of a name, most telling first. Read as
// plain weights they would give a wrong model without an error. musubi's fp8_scaled is not here:
// `.scale_weight` alone is read.
struct QuantisedForm {
  absl::string_view suffix, format;
};
constexpr std::array<QuantisedForm, 12> kQuantisedForms = {{
    {"scaled_fp8", "ComfyUI's scaled fp8"},
    {".comfy_quant", "ComfyUI's mixed quantisation"},
    {".scale_input", "fp8 with scaled inputs"},
    {".input_scale", "fp8 with scaled inputs"},
    {".scale_weight_tensor", "fp8 with scales of two levels"},
    {".weight_scale_2", "NVFP4"},
    {".weight_scale_inv", "fp8 with inverse scales"},
    {".weight_scale", "fp8 with weight_scale keys"},
    {".absmax", "bitsandbytes"},
    {".quant_map", "bitsandbytes"},
    {".qweight", "GPTQ or AWQ"},
    {".SCB", "bitsandbytes int8"},
}};

absl::Status RefuseQuantised(const std::string& path, const std::vector<std::string>& names) {
  for (const QuantisedForm& form : kQuantisedForms) {
    std::vector<std::string> found;
    std::copy_if(names.begin(), names.end(), std::back_inserter(found),
                 [&](const std::string& name) { return absl::EndsWith(name, form.suffix); });
    if (found.empty()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        path, " holds quantised weights: ", form.format, " (", found.size(), " keys such as ",
        TwoOf(found), "), which is not read: use the bf16 or fp32 file of the model with ",
        "model.quantization: fp8_scaled, or a file of musubi's fp8_scaled"));
  }
  return absl::OkStatus();
}

// The one prefix of all names, which may be empty.
absl::StatusOr<std::string> CommonPrefix(const std::string& path,
                                         const std::vector<std::string>& names) {
  std::map<absl::string_view, std::vector<std::string>> by_prefix;
  for (const std::string& name : names) by_prefix[PrefixOf(name)].push_back(name);
  if (by_prefix.empty()) return std::string();
  if (by_prefix.size() == 1) {
    const absl::string_view prefix = by_prefix.begin()->first;
    return std::string(prefix.data(), prefix.size());
  }
  std::vector<std::pair<absl::string_view, std::vector<std::string>>> groups(by_prefix.begin(),
                                                                             by_prefix.end());
  std::stable_sort(groups.begin(), groups.end(),
                   [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  std::string message = absl::StrCat(path, " mixes ", groups.size(),
                                     " kinds of tensor names, so no one prefix can be stripped");
  for (size_t i = 0; i < 2; ++i) {
    const std::string kind = groups[i].first.empty()
                                 ? "without a known prefix"
                                 : absl::StrCat("with the prefix ", Quoted(groups[i].first));
    absl::StrAppend(&message, "\n  ", groups[i].second.size(), " ", kind, ", such as ",
                    TwoOf(groups[i].second));
  }
  return absl::InvalidArgumentError(message);
}

// Every tensor of the shards is in the index and the other way round, in the shard the index says.
absl::Status CheckIndex(const std::string& path, const std::map<std::string, std::string>& shard_of,
                        const std::map<std::string, CheckpointSource::Tensor>& tensors) {
  for (const auto& [name, shard] : shard_of) {
    const auto found = tensors.find(name);
    if (found == tensors.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": tensor ", Quoted(name), " is in the index but not in its shard ", shard));
    }
    if (fs::path(found->second.file->path()).filename() != shard) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": tensor ", Quoted(name),
                                                     " lies in another shard than ", shard,
                                                     ", where the index says"));
    }
  }
  for (const auto& [name, tensor] : tensors) {
    if (shard_of.count(name) == 0) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": tensor ", Quoted(name), " of ",
                                                     tensor.file->path(), " is not in the index"));
    }
  }
  return absl::OkStatus();
}

absl::Status Named(const std::string& path, const std::string& tensor, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(path, ": tensor ", Quoted(tensor), ": ", status.message()));
}

absl::StatusOr<std::vector<std::byte>> ReadWhole(const CheckpointSource::Tensor& tensor) {
  std::vector<std::byte> bytes(static_cast<size_t>(tensor.entry.bytes));
  BLOCKSWAP_RETURN_IF_ERROR(tensor.file->Read(tensor.entry, absl::MakeSpan(bytes)));
  return bytes;
}

// Straight to where it goes when the type is the same, else through a piece at a time.
absl::Status ReadFloats(const CheckpointSource::Tensor& tensor, StoredType to,
                        absl::Span<std::byte> destination) {
  const TensorEntry& entry = tensor.entry;
  const int64_t from_bytes = StoredTypeBytes(entry.type), to_bytes = StoredTypeBytes(to);
  const auto wanted = static_cast<int64_t>(destination.size());
  if (entry.type == to && wanted == entry.bytes) return tensor.file->Read(entry, destination);
  const bool fits = wanted / to_bytes == entry.bytes / from_bytes && wanted % to_bytes == 0;
  if (!fits || entry.bytes == 0) {
    return ConvertFloats(entry.type, std::vector<std::byte>(static_cast<size_t>(entry.bytes)), to,
                         destination);  // says what does not fit
  }
  std::vector<std::byte> piece;
  for (int64_t done = 0; done < entry.bytes; done += kPieceBytes) {
    piece.resize(static_cast<size_t>(std::min(kPieceBytes, entry.bytes - done)));
    BLOCKSWAP_RETURN_IF_ERROR(tensor.file->Read(entry, absl::MakeSpan(piece), done));
    const auto first = static_cast<size_t>(done / from_bytes * to_bytes);
    const size_t bytes =
        piece.size() / static_cast<size_t>(from_bytes) * static_cast<size_t>(to_bytes);
    BLOCKSWAP_RETURN_IF_ERROR(
        ConvertFloats(entry.type, piece, to, destination.subspan(first, bytes)));
  }
  return absl::OkStatus();
}

}  // namespace

int64_t DtypeBytes(Dtype dtype) { return StoredTypeBytes(ToStoredType(dtype)); }

StoredType ToStoredType(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
      return StoredType::kF32;
    case Dtype::kBFloat16:
      return StoredType::kBF16;
    case Dtype::kFloat16:
      return StoredType::kF16;
  }
  return StoredType::kF32;
}

absl::StatusOr<std::shared_ptr<CheckpointSource>> CheckpointSource::Open(
    const std::string& weights, const std::string& config_path) {
  BLOCKSWAP_ASSIGN_OR_RETURN(WeightFiles files, FindWeightFiles(weights));
  std::shared_ptr<CheckpointSource> source(new CheckpointSource);
  source->path_ = weights;
  std::map<std::string, Tensor> tensors;
  std::vector<std::string> names;
  for (const std::string& path : files.paths) {
    BLOCKSWAP_ASSIGN_OR_RETURN(std::shared_ptr<SafetensorsFile> file, SafetensorsFile::Open(path));
    for (const auto& [name, entry] : file->tensors()) {
      if (!tensors.emplace(name, Tensor{file.get(), entry}).second) {
        return absl::InvalidArgumentError(
            absl::StrCat(weights, ": tensor ", Quoted(name), " is in two shards"));
      }
      names.push_back(name);
      source->total_bytes_ += entry.bytes;
    }
    source->files_.push_back(std::move(file));
  }
  if (!files.shard_of.empty()) {
    BLOCKSWAP_RETURN_IF_ERROR(CheckIndex(weights, files.shard_of, tensors));
  }
  BLOCKSWAP_RETURN_IF_ERROR(RefuseQuantised(weights, names));
  BLOCKSWAP_ASSIGN_OR_RETURN(source->stripped_prefix_, CommonPrefix(weights, names));
  for (auto& [name, tensor] : tensors) {
    source->tensors_.emplace(name.substr(source->stripped_prefix_.size()), std::move(tensor));
  }
  const std::string& config = config_path.empty() ? files.config_path : config_path;
  if (!config.empty()) {
    BLOCKSWAP_ASSIGN_OR_RETURN(source->config_json_, ReadTextFile(config, kMaxConfigBytes));
  }
  return source;
}

absl::StatusOr<const CheckpointSource::Tensor*> CheckpointSource::Find(
    const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return &found->second;
  return absl::NotFoundError(absl::StrCat(path_, " has no tensor ", Quoted(name)));
}

const CheckpointSource::Tensor* CheckpointSource::FindFp8Scale(const std::string& name) const {
  const auto found = tensors_.find(Fp8ScaleName(name));
  return found == tensors_.end() ? nullptr : &found->second;
}

absl::Status CheckpointSource::ReadDequantised(const Tensor& tensor, const Tensor* scale,
                                               Dtype dtype,
                                               absl::Span<std::byte> destination) const {
  Fp8Format format = PlainFp8Format(tensor.entry.shape);
  if (scale != nullptr) {
    BLOCKSWAP_ASSIGN_OR_RETURN(format, ReadFp8Format(tensor.entry.shape, scale->entry));
  }
  if (static_cast<int64_t>(destination.size()) != format.num_values() * DtypeBytes(dtype)) {
    return absl::InvalidArgumentError(absl::StrCat("cannot write ", format.num_values(),
                                                   " values to ", destination.size(), " bytes"));
  }
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::vector<std::byte> codes, ReadWhole(tensor));
  std::vector<std::byte> scales(static_cast<size_t>(format.scale_bytes()));
  if (scale != nullptr) {
    BLOCKSWAP_ASSIGN_OR_RETURN(scales, ReadWhole(*scale));
  } else {
    WritePlainFp8Scale(scales.data());
  }
  DequantiseFp8(format, codes.data(), scales.data(), ToStoredType(dtype), 0, format.num_scales,
                destination.data());
  return absl::OkStatus();
}

absl::Status CheckpointSource::Read(const std::string& name, Dtype dtype,
                                    absl::Span<std::byte> destination) const {
  BLOCKSWAP_ASSIGN_OR_RETURN(const Tensor* tensor, Find(name));
  return Named(path_, name,
               tensor->entry.type == StoredType::kF8E4M3
                   ? ReadDequantised(*tensor, FindFp8Scale(name), dtype, destination)
                   : ReadFloats(*tensor, ToStoredType(dtype), destination));
}

absl::Status CheckpointSource::ReadFp8(const std::string& name, const Fp8Format& format,
                                       absl::Span<std::byte> codes,
                                       absl::Span<std::byte> scales) const {
  BLOCKSWAP_ASSIGN_OR_RETURN(const Tensor* tensor, Find(name));
  if (!format.stored) {
    BLOCKSWAP_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, ReadWhole(*tensor));
    return Named(path_, name, QuantiseFp8(tensor->entry.type, bytes, format, codes, scales));
  }
  const Tensor* scale = nullptr;
  if (!format.plain) {
    BLOCKSWAP_ASSIGN_OR_RETURN(scale, Find(Fp8ScaleName(name)));
  }
  const int64_t code_bytes = tensor->entry.bytes;
  const int64_t scale_bytes = scale == nullptr ? format.scale_bytes() : scale->entry.bytes;
  if (tensor->entry.type != StoredType::kF8E4M3 ||
      static_cast<int64_t>(codes.size()) != code_bytes ||
      static_cast<int64_t>(scales.size()) != scale_bytes) {
    return Named(path_, name,
                 absl::InvalidArgumentError(absl::StrCat(
                     "holds ", code_bytes, " codes and ", scale_bytes,
                     " bytes of scales, asked for are ", codes.size(), " and ", scales.size())));
  }
  BLOCKSWAP_RETURN_IF_ERROR(tensor->file->Read(tensor->entry, codes));
  if (scale != nullptr) return scale->file->Read(scale->entry, scales);
  WritePlainFp8Scale(scales.data());
  return absl::OkStatus();
}

void CheckpointSource::WillNeed(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) found->second.file->WillNeed(found->second.entry);
}

int64_t CheckpointSource::bytes_read() const {
  int64_t bytes = 0;
  for (const std::shared_ptr<SafetensorsFile>& file : files_) bytes += file->reader().bytes_read();
  return bytes;
}

void CheckpointSource::ChooseReadMode() {
  const auto largest = std::max_element(
      files_.begin(), files_.end(),
      [](const auto& a, const auto& b) { return a->reader().bytes() < b->reader().bytes(); });
  if (largest == files_.end()) return;
  const ReadTrial trial = (*largest)->reader().Try(kTrialBytes);
  const bool direct = trial.direct_bytes_per_second > trial.buffered_bytes_per_second * kDirectGain;
  for (const std::shared_ptr<SafetensorsFile>& file : files_) {
    file->reader().SetMode(direct ? ReadMode::kDirect : ReadMode::kBuffered);
  }
  file_bytes_per_second_ =
      std::max(trial.direct_bytes_per_second * (direct ? 1 : 0), trial.buffered_bytes_per_second);
  const auto rate = [](double bytes_per_second) {
    return bytes_per_second == 0
               ? std::string("not possible")
               : absl::StrCat(base::FormatByteSize(static_cast<int64_t>(bytes_per_second)), "/s");
  };
  read_mode_text_ =
      absl::StrCat(direct ? "past the page cache (O_DIRECT)" : "through the page cache",
                   ": measured ", rate(trial.direct_bytes_per_second), " past it, ",
                   rate(trial.buffered_bytes_per_second), " through it");
}

absl::StatusOr<std::string> CheckpointSource::Identity() const {
  std::string text;
  for (const std::shared_ptr<SafetensorsFile>& file : files_) {
    struct stat facts;
    if (fstat(file->reader().fd(), &facts) != 0) {
      return ErrnoStatus(errno, absl::StrCat("cannot stat ", file->path()));
    }
    absl::StrAppend(&text, facts.st_dev, ":", facts.st_ino, ":", facts.st_size, ":",
                    facts.st_mtim.tv_sec, ".", facts.st_mtim.tv_nsec, ":",
                    Sha256Hex(file->header()), "\n");
  }
  return Sha256Hex(text);
}

}  // namespace blockswap::worker
