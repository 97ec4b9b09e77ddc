// SPDX-License-Identifier: Apache-2.0
#include "worker/data/media_sources.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "offload/base/byte_size.h"
#include "offload/base/status_macros.h"
#include "worker/io/json_text.h"
#include "worker/io/regular_file.h"

namespace blockswap::worker {
namespace {

namespace fs = std::filesystem;

constexpr const char* kImageExtensions[] = {".png", ".jpg",  ".jpeg", ".webp",
                                            ".bmp", ".avif", ".jxl"};
constexpr int64_t kMaxCaptionBytes = base::kMiB;
constexpr int64_t kMaxJsonlBytes = 1024 * base::kMiB;

bool IsImage(const fs::path& path) {
  const std::string extension = absl::AsciiStrToLower(path.extension().string());
  return std::find(std::begin(kImageExtensions), std::end(kImageExtensions), extension) !=
         std::end(kImageExtensions);
}

std::string Trimmed(const std::string& text) {
  const absl::string_view trimmed = absl::StripAsciiWhitespace(text);
  return std::string(trimmed.data(), trimmed.size());
}

absl::Status CheckUnique(const std::vector<DeclaredItem>& items) {
  std::map<std::string, const DeclaredItem*> seen;
  for (const DeclaredItem& item : items) {
    const auto [first, inserted] = seen.emplace(item.name, &item);
    if (inserted) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("two items are named ", Quoted(item.name), " (", first->second->source,
                     " and ", item.source, "): their caches would be one file; rename one"));
  }
  return absl::OkStatus();
}

absl::Status ReadCaption(const fs::path& image, const std::string& extension, DeclaredItem* item) {
  fs::path path = image;
  path.replace_extension();
  const auto caption = ReadTextFile(path.string() + extension, kMaxCaptionBytes);
  if (absl::IsNotFound(caption.status())) {
    item->caption_missing = true;
    return absl::OkStatus();
  }
  if (!caption.ok()) return caption.status();
  item->caption = Trimmed(*caption);
  return absl::OkStatus();
}

absl::StatusOr<DeclaredItem> ItemOfLine(absl::string_view line, const std::string& where) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson(line, where));
  if (!json.is_object())
    return absl::InvalidArgumentError(absl::StrCat(where, " is no JSON object"));
  if (json.contains("video_path") || json.contains("image_path_0") ||
      json.contains("control_path") || json.contains("control_path_0")) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": videos, several images and control images are not available yet"));
  }
  const auto image = json.find("image_path"), caption = json.find("caption");
  if (image == json.end() || !image->is_string() || image->get_ref<const std::string&>().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(where, " lacks image_path, a text"));
  }
  if (caption != json.end() && !caption->is_string()) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": caption must be text"));
  }
  DeclaredItem item;
  item.name = fs::path(image->get<std::string>()).stem().string();
  item.source = where;
  if (caption == json.end()) {
    item.caption_missing = true;
  } else {
    item.caption = Trimmed(caption->get<std::string>());
  }
  return item;
}

}  // namespace

absl::StatusOr<std::vector<DeclaredItem>> ItemsOfDirectory(const std::string& directory,
                                                           const std::string& caption_extension) {
  std::vector<fs::path> images;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    if (IsImage(it->path())) images.push_back(it->path());
  }
  if (error) return ErrnoStatus(error.value(), absl::StrCat("cannot list ", directory));
  std::sort(images.begin(), images.end());
  std::vector<DeclaredItem> items;
  for (const fs::path& image : images) {
    DeclaredItem item;
    item.name = image.stem().string();
    item.source = image.string();
    if (!caption_extension.empty()) {
      BLOCKSWAP_RETURN_IF_ERROR(ReadCaption(image, caption_extension, &item));
    }
    items.push_back(std::move(item));
  }
  BLOCKSWAP_RETURN_IF_ERROR(CheckUnique(items));
  return items;
}

absl::StatusOr<std::vector<DeclaredItem>> ItemsOfJsonl(const std::string& path) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxJsonlBytes));
  std::vector<DeclaredItem> items;
  int64_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    BLOCKSWAP_ASSIGN_OR_RETURN(
        DeclaredItem item,
        ItemOfLine(line, absl::StrCat(fs::path(path).filename().string(), " line ", number)));
    items.push_back(std::move(item));
  }
  BLOCKSWAP_RETURN_IF_ERROR(CheckUnique(items));
  std::sort(items.begin(), items.end(),
            [](const DeclaredItem& a, const DeclaredItem& b) { return a.name < b.name; });
  return items;
}

}  // namespace blockswap::worker
