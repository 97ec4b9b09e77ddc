// SPDX-License-Identifier: Apache-2.0
#include "worker/io/weight_files.h"

#include <filesystem>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "offload/base/byte_size.h"
#include "offload/base/status_macros.h"
#include "worker/io/json_text.h"
#include "worker/io/regular_file.h"

namespace blockswap::worker {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxIndexBytes = 100 * base::kMiB;  // as long as a header may be
constexpr char kIndexSuffix[] = ".safetensors.index.json";

// Shards lie beside their index: a name with a path in it could lead anywhere.
bool IsPlainShardName(const std::string& name) {
  return !name.empty() && name[0] != '.' && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos && absl::EndsWith(name, ".safetensors");
}

absl::StatusOr<WeightFiles> FilesOfIndex(const std::string& index_path) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(index_path, kMaxIndexBytes));
  BLOCKSWAP_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson(text, index_path));
  const auto map = json.find("weight_map");
  if (!json.is_object() || map == json.end() || !map->is_object() || map->empty()) {
    return absl::InvalidArgumentError(absl::StrCat(index_path, " has no weight_map"));
  }
  WeightFiles files;
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string() || !IsPlainShardName(shard.get_ref<const std::string&>())) {
      return absl::InvalidArgumentError(absl::StrCat(
          index_path, ": tensor ", Quoted(tensor),
          ": its shard must be the plain name of a .safetensors file beside the index"));
    }
    files.shard_of[tensor] = shard.get<std::string>();
    shards.insert(shard.get<std::string>());
  }
  const std::string directory = fs::path(index_path).parent_path().string();
  std::vector<std::string> missing;
  for (const std::string& shard : shards) {
    const std::string path = directory.empty() ? shard : absl::StrCat(directory, "/", shard);
    std::error_code ignored;
    if (!fs::exists(path, ignored)) missing.push_back(shard);
    files.paths.push_back(path);
  }
  if (!missing.empty()) {
    return absl::NotFoundError(absl::StrCat(index_path, ": ", missing.size(), " of ", shards.size(),
                                            " shards are missing: ", absl::StrJoin(missing, ", ")));
  }
  return files;
}

absl::StatusOr<WeightFiles> FilesOfDirectory(fs::path directory) {
  std::error_code error;
  if (fs::exists(directory / "model_index.json", error) &&
      fs::exists(directory / "transformer" / "config.json", error)) {
    directory /= "transformer";  // a whole diffusers pipeline
  }
  std::vector<std::string> indexes, singles;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (absl::EndsWith(name, kIndexSuffix)) indexes.push_back(it->path().string());
    if (absl::EndsWith(name, ".safetensors")) singles.push_back(it->path().string());
  }
  if (error) return ErrnoStatus(error.value(), absl::StrCat("cannot list ", directory.string()));
  WeightFiles files;
  if (indexes.size() == 1) {
    BLOCKSWAP_ASSIGN_OR_RETURN(files, FilesOfIndex(indexes[0]));
  } else if (indexes.empty() && singles.size() == 1) {
    files.paths = singles;
  } else {
    return absl::InvalidArgumentError(absl::StrCat(
        directory.string(), " must hold one .safetensors file or one ", kIndexSuffix, ", found ",
        singles.size(), " and ", indexes.size(), "; name the file itself"));
  }
  if (fs::exists(directory / "config.json", error)) {
    files.config_path = (directory / "config.json").string();
  }
  return files;
}

}  // namespace

absl::StatusOr<WeightFiles> FindWeightFiles(const std::string& weights) {
  std::error_code error;
  if (fs::is_directory(weights, error)) return FilesOfDirectory(weights);
  if (absl::EndsWith(weights, kIndexSuffix)) return FilesOfIndex(weights);
  WeightFiles files;
  files.paths.push_back(weights);
  return files;
}

}  // namespace blockswap::worker
