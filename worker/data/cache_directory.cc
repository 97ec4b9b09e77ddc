// SPDX-License-Identifier: Apache-2.0
#include "worker/data/cache_directory.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "worker/io/regular_file.h"

namespace blockswap::worker {
namespace {

namespace fs = std::filesystem;

constexpr char kExtension[] = ".safetensors";
constexpr size_t kLongestSideDigits = 6;

bool ParseSide(const std::string& text, int64_t* side) {
  return text.size() >= 4 && text.size() <= kLongestSideDigits &&
         text.find_first_not_of("0123456789") == std::string::npos && absl::SimpleAtoi(text, side);
}

// Splits "{item}_{WWWW}x{HHHH}" from the right: items may have underscores of their own.
bool ParseStem(const std::string& stem, std::string* item, LatentName* name) {
  const size_t underscore = stem.rfind('_');
  if (underscore == std::string::npos || underscore == 0) return false;
  const std::string size = stem.substr(underscore + 1);
  const size_t cross = size.find('x');
  if (cross == std::string::npos || !ParseSide(size.substr(0, cross), &name->width) ||
      !ParseSide(size.substr(cross + 1), &name->height)) {
    return false;
  }
  *item = stem.substr(0, underscore);
  return true;
}

void AddFile(const fs::path& path, const std::string& short_name, CacheDirectory* caches) {
  const std::string file = path.filename().string();
  if (!absl::EndsWith(file, kExtension) || file[0] == '.') return;
  const std::string stem = file.substr(0, file.size() - (sizeof(kExtension) - 1));
  const std::string latent_suffix = absl::StrCat("_", short_name);
  const std::string text_suffix = absl::StrCat(latent_suffix, "_te");
  if (absl::EndsWith(stem, text_suffix)) {
    caches->texts[stem.substr(0, stem.size() - text_suffix.size())] = path.string();
    return;
  }
  if (!absl::EndsWith(stem, latent_suffix)) {
    ++caches->of_other_families;
    return;
  }
  LatentName name;
  name.path = path.string();
  std::string item;
  if (ParseStem(stem.substr(0, stem.size() - latent_suffix.size()), &item, &name)) {
    caches->latents[item].push_back(std::move(name));
  } else {
    caches->malformed.push_back(file);
  }
}

}  // namespace

int64_t CacheDirectory::num_latents() const {
  int64_t count = 0;
  for (const auto& [item, names] : latents) count += static_cast<int64_t>(names.size());
  return count;
}

absl::StatusOr<CacheDirectory> ListCaches(const std::string& directory,
                                          const std::string& short_name) {
  CacheDirectory caches;
  caches.path = directory;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    AddFile(it->path(), short_name, &caches);
  }
  if (error) return ErrnoStatus(error.value(), absl::StrCat("cannot list ", directory));
  // Folders list in any order; messages and choices must not depend on it.
  for (auto& [item, names] : caches.latents) {
    std::sort(names.begin(), names.end(),
              [](const LatentName& a, const LatentName& b) { return a.path < b.path; });
  }
  std::sort(caches.malformed.begin(), caches.malformed.end());
  return caches;
}

}  // namespace blockswap::worker
