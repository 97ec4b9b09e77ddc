// SPDX-License-Identifier: Apache-2.0
#include "worker/data/cache_headers.h"

#include <array>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "offload/base/status_macros.h"
#include "worker/io/json_text.h"

namespace blockswap::worker {
namespace {

using Version = std::array<int64_t, 3>;
constexpr Version kNewestKnown = {1, 0, 1};
constexpr char kControlPrefix[] = "latents_control_";
constexpr char kLatentPrefix[] = "latents_";

std::string FileName(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

CacheMismatch Mismatch(ItemFault fault, const std::string& path, const std::string& what) {
  return {fault, absl::StrCat(FileName(path), ": ", what)};
}

std::optional<Version> ParseVersion(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '.');
  Version version = {};
  if (parts.size() != version.size()) return std::nullopt;
  for (size_t i = 0; i < version.size(); ++i) {
    if (!absl::SimpleAtoi(parts[i], &version[i]) || version[i] < 0) return std::nullopt;
  }
  return version;
}

std::string MetadataOf(const SafetensorsFile& file, const char* key) {
  const auto found = file.metadata().find(key);
  return found == file.metadata().end() ? "" : found->second;
}

// What both kinds of cache have: the architecture they were made for and the version of the format.
std::optional<CacheMismatch> CheckMetadata(const SafetensorsFile& file, const Family& family) {
  const std::string architecture = MetadataOf(file, "architecture");
  if (architecture != family.name()) {
    const absl::string_view expected = family.name();
    return Mismatch(ItemFault::kOtherArchitecture, file.path(),
                    architecture.empty()
                        ? absl::StrCat("names no architecture, expected ", expected)
                        : absl::StrCat("made for ", Quoted(architecture), ", expected ", expected));
  }
  const std::string text = MetadataOf(file, "format_version");
  const std::optional<Version> version = ParseVersion(text);
  if (!version.has_value() || *version > kNewestKnown) {
    return Mismatch(ItemFault::kNewerFormat, file.path(),
                    absl::StrCat("format_version ", Quoted(text), ", known up to ",
                                 absl::StrJoin(kNewestKnown, ".")));
  }
  return std::nullopt;
}

bool IsReadable(StoredType type) {
  return type == StoredType::kF32 || type == StoredType::kF16 || type == StoredType::kBF16;
}

// "latents_1x68x120_float32" is what the key of a [C, 1, 68, 120] tensor must start with.
std::string ExpectedLatentStart(const std::vector<int64_t>& shape) {
  return absl::StrCat(kLatentPrefix, shape[1], "x", shape[2], "x", shape[3], "_");
}

std::optional<CacheMismatch> FindLatents(const SafetensorsFile& file, const ModelDescription& model,
                                         LatentHeader* header) {
  for (const auto& [key, entry] : file.tensors()) {
    if (absl::StartsWith(key, kControlPrefix)) {
      header->control_shapes.push_back(entry.shape);
      continue;
    }
    if (!absl::StartsWith(key, kLatentPrefix)) continue;
    if (!header->key.empty()) {
      return Mismatch(ItemFault::kWrongContent, file.path(),
                      absl::StrCat("has both ", header->key, " and ", Quoted(key)));
    }
    if (entry.shape.size() != 4 || !IsReadable(entry.type) ||
        !absl::StartsWith(key, ExpectedLatentStart(entry.shape))) {
      return Mismatch(
          ItemFault::kWrongContent, file.path(),
          absl::StrCat("key ", Quoted(key), " does not fit its tensor [",
                       absl::StrJoin(entry.shape, ", "), "] of ", StoredTypeName(entry.type),
                       ", expected latents_FxHxW_dtype with [channels, F, H, W]"));
    }
    header->key = key;
    header->channels = entry.shape[0];
    header->frames = entry.shape[1];
    header->height = entry.shape[2];
    header->width = entry.shape[3];
  }
  if (header->key.empty()) {
    return Mismatch(ItemFault::kWrongContent, file.path(), "has no latents_FxHxW_dtype tensor");
  }
  if (header->channels != model.latent_channels || header->frames != 1) {
    return Mismatch(
        ItemFault::kWrongContent, file.path(),
        absl::StrCat("latents have ", header->channels, " channels and ", header->frames,
                     " frames, the model takes ", model.latent_channels, " and 1"));
  }
  return std::nullopt;
}

}  // namespace

std::optional<CacheMismatch> ReadLatentHeader(const std::string& path, const Family& family,
                                              const ModelDescription& model, LatentHeader* header) {
  const auto file = SafetensorsFile::Open(path);
  if (!file.ok()) {
    const absl::string_view why = file.status().message();
    return CacheMismatch{ItemFault::kUnreadable, std::string(why.data(), why.size())};
  }
  if (auto mismatch = CheckMetadata(**file, family)) return mismatch;
  if (auto mismatch = FindLatents(**file, model, header)) return mismatch;
  if (!absl::SimpleAtoi(MetadataOf(**file, "width"), &header->media_width) ||
      !absl::SimpleAtoi(MetadataOf(**file, "height"), &header->media_height)) {
    return Mismatch(ItemFault::kWrongContent, path, "metadata lacks width and height");
  }
  return std::nullopt;
}

std::optional<CacheMismatch> ReadTextHeader(const std::string& path, const Family& family,
                                            const ModelDescription& model, TextHeader* header) {
  const auto file = SafetensorsFile::Open(path);
  if (!file.ok()) {
    const absl::string_view why = file.status().message();
    return CacheMismatch{ItemFault::kUnreadable, std::string(why.data(), why.size())};
  }
  if (auto mismatch = CheckMetadata(**file, family)) return mismatch;
  const std::string start = absl::StrCat(model.text_cache_content, "_");
  for (const auto& [key, entry] : (*file)->tensors()) {
    if (!absl::StartsWith(key, start)) continue;
    if (!header->key.empty() || entry.shape.size() != 2 || !IsReadable(entry.type) ||
        entry.shape[0] < 1 || entry.shape[1] != model.text_features) {
      return Mismatch(
          ItemFault::kWrongContent, path,
          absl::StrCat("key ", Quoted(key), " has shape [", absl::StrJoin(entry.shape, ", "),
                       "] and type ", StoredTypeName(entry.type), ", expected one [tokens, ",
                       model.text_features, "] of F32, F16 or BF16"));
    }
    header->key = key;
    header->tokens = entry.shape[0];
  }
  if (header->key.empty()) {
    return Mismatch(ItemFault::kWrongContent, path, absl::StrCat("has no ", start, "dtype tensor"));
  }
  header->caption = MetadataOf(**file, "caption1");
  absl::StripAsciiWhitespace(&header->caption);  // as the sources' captions are
  return std::nullopt;
}

}  // namespace blockswap::worker
