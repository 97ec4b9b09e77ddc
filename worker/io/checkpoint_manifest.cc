// SPDX-License-Identifier: Apache-2.0
#include "worker/io/checkpoint_manifest.h"

#include <errno.h>
#include <sys/stat.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "offload/base/byte_size.h"
#include "offload/base/status_macros.h"
#include "worker/io/json_text.h"
#include "worker/io/regular_file.h"

namespace blockswap::worker {
namespace {

constexpr char kFormat[] = "blockswap-checkpoint";
constexpr int kVersion = 1;
constexpr int64_t kMaxManifestBytes = 16 * base::kMiB;

bool IsPlainName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos && name != kManifestName;
}

absl::Status ParseFiles(const nlohmann::json& list, CheckpointManifest* manifest) {
  for (const nlohmann::json& file : list) {
    if (!file.is_object() || !file.contains("name") || !file["name"].is_string() ||
        !IsPlainName(file["name"].get<std::string>()) || !file.contains("bytes") ||
        !file["bytes"].is_number_unsigned() || !file.contains("sha256") ||
        !file["sha256"].is_string()) {
      return absl::DataLossError("manifest has a malformed file entry");
    }
    manifest->files[file["name"].get<std::string>()] = {file["sha256"].get<std::string>(),
                                                        file["bytes"].get<int64_t>()};
  }
  return absl::OkStatus();
}

}  // namespace

std::string ManifestToJson(const CheckpointManifest& manifest) {
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const auto& [name, digest] : manifest.files) {
    files.push_back({{"name", name}, {"bytes", digest.bytes}, {"sha256", digest.sha256}});
  }
  const nlohmann::ordered_json json = {{"format", kFormat},
                                       {"version", kVersion},
                                       {"step", manifest.step},
                                       {"properties", manifest.properties},
                                       {"files", files}};
  return absl::StrCat(
      json.dump(2, ' ', /*ensure_ascii=*/false, nlohmann::ordered_json::error_handler_t::replace),
      "\n");
}

absl::StatusOr<CheckpointManifest> ReadManifest(const std::string& directory) {
  const auto text = ReadTextFile(absl::StrCat(directory, "/", kManifestName), kMaxManifestBytes);
  if (absl::IsNotFound(text.status())) return absl::DataLossError("manifest is missing");
  if (!text.ok()) return text.status();
  if (text->empty()) return absl::DataLossError("manifest is empty");
  const auto json = ParseJson(*text, "manifest");
  if (!json.ok()) return absl::DataLossError(json.status().message());
  if (!json->is_object() || json->value("format", nlohmann::json()) != kFormat) {
    return absl::DataLossError("manifest is none of a blockswap checkpoint");
  }
  if (json->value("version", nlohmann::json()) != kVersion) {
    return absl::DataLossError("manifest has another version than 1");
  }
  CheckpointManifest manifest;
  manifest.sha256 = Sha256Hex(*text);
  if (!json->contains("step") || !(*json)["step"].is_number_unsigned() ||
      !json->contains("properties") || !(*json)["properties"].is_object() ||
      !json->contains("files") || !(*json)["files"].is_array()) {
    return absl::DataLossError("manifest lacks step, properties or files");
  }
  manifest.step = (*json)["step"].get<int64_t>();
  for (const auto& [key, value] : (*json)["properties"].items()) {
    if (!value.is_string()) return absl::DataLossError("manifest has a property that is no text");
    manifest.properties[key] = value.get<std::string>();
  }
  BLOCKSWAP_RETURN_IF_ERROR(ParseFiles((*json)["files"], &manifest));
  return manifest;
}

absl::StatusOr<std::map<std::string, FileDigest>> DigestFiles(const std::string& directory) {
  std::map<std::string, FileDigest> files;
  std::error_code error;
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code ignored;
    if (!it->is_regular_file(ignored) || it->is_symlink(ignored) || !IsPlainName(name)) {
      return absl::InternalError(
          absl::StrCat("a checkpoint holds plain files only, found ", Quoted(name)));
    }
    BLOCKSWAP_ASSIGN_OR_RETURN(files[name], Sha256OfFile(it->path().string()));
  }
  if (error) return ErrnoStatus(error.value(), absl::StrCat("cannot list ", directory));
  return files;
}

namespace {

// What nothing would read is state that somebody counts on in vain.
absl::Status CheckNothingElse(const std::string& directory, const CheckpointManifest& manifest) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    // Names with a dot are left-overs of a writer that was killed.
    if (name[0] == '.' || name == kManifestName || manifest.files.count(name) != 0) continue;
    return absl::DataLossError(absl::StrCat(
        name, " is no part of the checkpoint: its manifest does not name it; move it elsewhere"));
  }
  if (error) return ErrnoStatus(error.value(), absl::StrCat("cannot list ", directory));
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckFiles(const std::string& directory, const CheckpointManifest& manifest,
                        CheckDepth depth) {
  BLOCKSWAP_RETURN_IF_ERROR(CheckNothingElse(directory, manifest));
  for (const auto& [name, expected] : manifest.files) {
    const std::string path = absl::StrCat(directory, "/", name);
    struct stat info;
    if (lstat(path.c_str(), &info) != 0) {
      if (errno == ENOENT) return absl::DataLossError(absl::StrCat(name, " is missing"));
      return ErrnoStatus(errno, absl::StrCat("cannot stat ", path));
    }
    if (!S_ISREG(info.st_mode))
      return absl::DataLossError(absl::StrCat(name, " is no regular file"));
    if (info.st_size != expected.bytes) {
      return absl::DataLossError(
          absl::StrCat(name, " has ", info.st_size, " bytes, the manifest says ", expected.bytes));
    }
    if (depth == CheckDepth::kSizes) continue;
    BLOCKSWAP_ASSIGN_OR_RETURN(const FileDigest actual, Sha256OfFile(path));
    if (actual.sha256 != expected.sha256) {
      return absl::DataLossError(
          absl::StrCat(name, " has other content than when it was saved (SHA-256 differs)"));
    }
  }
  return absl::OkStatus();
}

}  // namespace blockswap::worker
