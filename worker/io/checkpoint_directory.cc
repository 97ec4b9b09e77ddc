// SPDX-License-Identifier: Apache-2.0
#include "worker/io/checkpoint_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "offload/base/status_macros.h"
#include "worker/io/atomic_file.h"
#include "worker/io/checkpoint_manifest.h"

namespace blockswap::worker {
namespace {

namespace fs = std::filesystem;

constexpr char kStepPrefix[] = "step-";
constexpr char kTemporaryMark[] = ".tmp-";
constexpr char kAsideMark[] = ".old-";
constexpr int64_t kLargestStep = 999'999'999'999;

std::string StepName(int64_t step) { return absl::StrFormat("%s%08d", kStepPrefix, step); }

std::optional<int64_t> StepOfName(const std::string& name) {
  if (!absl::StartsWith(name, kStepPrefix)) return std::nullopt;
  const std::string digits = name.substr(sizeof(kStepPrefix) - 1);
  int64_t step = 0;
  if (digits.size() < 8 || digits.find_first_not_of("0123456789") != std::string::npos ||
      !absl::SimpleAtoi(digits, &step) || StepName(step) != name) {
    return std::nullopt;
  }
  return step;
}

// Removes a directory that never became, or no longer is, a checkpoint. What cannot be removed is
// left for the next clean-up.
void Remove(const std::string& directory) {
  std::error_code ignored;
  fs::remove_all(directory, ignored);
}

class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(std::string path) : path_(std::move(path)) {}
  ~TemporaryDirectory() {
    if (!path_.empty()) Remove(path_);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }
  void Release() { path_.clear(); }

 private:
  std::string path_;
};

absl::Status CheckFreeSpace(const std::string& parent, int64_t expected_bytes) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const int64_t free, FreeDiskBytes(parent));
  const int64_t needed = expected_bytes + expected_bytes / 5;
  if (free >= needed) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("out of space for a checkpoint below ", parent, ": ", needed, " bytes needed, ",
                   free, " free; free some space, or keep fewer checkpoints"));
}

// Puts `temporary` under its final name. An older directory of that name changes places with it in
// one step, or, where the file system cannot do that, is moved aside first and found again by
// FindNewestCheckpoint should we die in between.
absl::Status Publish(const std::string& parent, const std::string& temporary,
                     const std::string& final_path) {
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(final_path, ignored))) {
    if (rename(temporary.c_str(), final_path.c_str()) != 0) {
      return ErrnoStatus(errno, absl::StrCat("cannot rename to ", final_path));
    }
    return SyncDirectory(parent);
  }
  if (renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, final_path.c_str(), RENAME_EXCHANGE) == 0) {
    BLOCKSWAP_RETURN_IF_ERROR(SyncDirectory(parent));
    Remove(temporary);  // now the older one
    return absl::OkStatus();
  }
  const std::string aside = absl::StrCat(parent, "/.", fs::path(final_path).filename().string(),
                                         kAsideMark, RandomSuffix());
  if (rename(final_path.c_str(), aside.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot move aside ", final_path));
  }
  if (rename(temporary.c_str(), final_path.c_str()) != 0) {
    const int error_number = errno;
    rename(aside.c_str(), final_path.c_str());
    return ErrnoStatus(error_number, absl::StrCat("cannot rename to ", final_path));
  }
  BLOCKSWAP_RETURN_IF_ERROR(SyncDirectory(parent));
  Remove(aside);
  return absl::OkStatus();
}

struct Found {
  int64_t step = 0;
  std::string name;
};

// Step directories, newest first.
absl::StatusOr<std::vector<Found>> ListSteps(const std::string& parent) {
  std::vector<Found> found;
  std::error_code error;
  for (fs::directory_iterator it(parent, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code ignored;
    const std::optional<int64_t> step = StepOfName(name);
    if (step.has_value() && it->is_directory(ignored)) found.push_back({*step, name});
  }
  if (error && error.value() != ENOENT) {
    return ErrnoStatus(error.value(), absl::StrCat("cannot list ", parent));
  }
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return a.step > b.step; });
  return found;
}

// Left-overs of a killed writer: temporaries go, a checkpoint that was moved aside and never
// replaced comes back.
void CleanUp(const std::string& parent) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(parent, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  for (const std::string& name : names) {
    if (!absl::StartsWith(name, absl::StrCat(".", kStepPrefix))) continue;
    const std::string path = absl::StrCat(parent, "/", name);
    const size_t aside = name.find(kAsideMark);
    if (aside != std::string::npos) {
      const std::string original = absl::StrCat(parent, "/", name.substr(1, aside - 1));
      if (rename(path.c_str(), original.c_str()) != 0) Remove(path);
    } else if (name.find(kTemporaryMark) != std::string::npos) {
      Remove(path);
    }
  }
}

absl::StatusOr<CommittedCheckpoint> Check(const std::string& directory, CheckDepth depth) {
  const auto manifest = ReadManifest(directory);
  absl::Status status = manifest.status();
  if (status.ok()) status = CheckFiles(directory, *manifest, depth);
  if (status.ok() && fs::path(directory).filename() != StepName(manifest->step) &&
      StepOfName(fs::path(directory).filename().string()).has_value()) {
    status = absl::DataLossError(
        absl::StrCat("manifest is of step ", manifest->step, ", not of this directory"));
  }
  if (!status.ok()) return status;
  CommittedCheckpoint result;
  result.step = manifest->step;
  result.directory = directory;
  result.manifest_sha256 = manifest->sha256;
  result.properties = manifest->properties;
  for (const auto& [name, digest] : manifest->files) result.bytes += digest.bytes;
  return result;
}

// Lets the caller fill the directory, then hashes and fsyncs what it wrote; the manifest comes
// last.
absl::StatusOr<CheckpointManifest> Fill(
    const std::string& directory, int64_t step,
    const std::map<std::string, std::string>& properties,
    const std::function<absl::Status(const std::string&)>& write) {
  BLOCKSWAP_RETURN_IF_ERROR(write(directory));
  CheckpointManifest manifest;
  manifest.step = step;
  manifest.properties = properties;
  BLOCKSWAP_ASSIGN_OR_RETURN(manifest.files, DigestFiles(directory));
  for (const auto& [name, digest] : manifest.files) {
    BLOCKSWAP_RETURN_IF_ERROR(SyncFile(absl::StrCat(directory, "/", name)));
  }
  const std::string text = ManifestToJson(manifest);
  BLOCKSWAP_RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(directory, "/", kManifestName), text));
  manifest.sha256 = Sha256Hex(text);
  return manifest;
}

}  // namespace

absl::StatusOr<CommittedCheckpoint> CommitCheckpoint(
    const std::string& parent, int64_t step, int64_t expected_bytes,
    const std::map<std::string, std::string>& properties,
    const std::function<absl::Status(const std::string& directory)>& write) {
  if (step < 0 || step > kLargestStep) {
    return absl::InvalidArgumentError(absl::StrCat("step of a checkpoint out of range: ", step));
  }
  std::error_code error;
  fs::create_directories(parent, error);
  if (error) return ErrnoStatus(error.value(), absl::StrCat("cannot make the directory ", parent));
  BLOCKSWAP_RETURN_IF_ERROR(CheckFreeSpace(parent, expected_bytes));
  TemporaryDirectory temporary(
      absl::StrCat(parent, "/.", StepName(step), kTemporaryMark, RandomSuffix()));
  if (mkdir(temporary.path().c_str(), 0777) != 0) {
    const int error_number = errno;
    return ErrnoStatus(error_number, absl::StrCat("cannot make the directory ", temporary.path()));
  }
  BLOCKSWAP_ASSIGN_OR_RETURN(const CheckpointManifest manifest,
                             Fill(temporary.path(), step, properties, write));
  CommittedCheckpoint result;
  result.step = step;
  result.directory = absl::StrCat(parent, "/", StepName(step));
  BLOCKSWAP_RETURN_IF_ERROR(Publish(parent, temporary.path(), result.directory));
  temporary.Release();
  result.manifest_sha256 = manifest.sha256;
  result.properties = properties;
  for (const auto& [name, digest] : manifest.files) result.bytes += digest.bytes;
  return result;
}

absl::StatusOr<CommittedCheckpoint> VerifyCheckpoint(const std::string& directory) {
  auto checked = Check(directory, CheckDepth::kHashes);
  if (checked.ok()) return checked;
  return absl::Status(checked.status().code(),
                      absl::StrCat("checkpoint ", directory, ": ", checked.status().message()));
}

absl::StatusOr<CommittedCheckpoint> FindNewestCheckpoint(const std::string& parent,
                                                         std::vector<std::string>* skipped) {
  CleanUp(parent);
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::vector<Found> steps, ListSteps(parent));
  for (const Found& found : steps) {
    auto checked = Check(absl::StrCat(parent, "/", found.name), CheckDepth::kHashes);
    if (checked.ok()) return checked;
    if (skipped != nullptr) {
      const absl::string_view why = checked.status().message();
      skipped->push_back(absl::StrCat(found.name, ": ", why));
    }
  }
  return absl::NotFoundError(absl::StrCat("no complete checkpoint below ", parent));
}

absl::Status PruneCheckpoints(const std::string& parent, int keep) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::vector<Found> steps, ListSteps(parent));
  int complete = 0;
  for (const Found& found : steps) {
    const std::string directory = absl::StrCat(parent, "/", found.name);
    // The newest that counts is read in full: at least one that is surely good stays, however few
    // are kept.
    const CheckDepth depth = complete == 0 ? CheckDepth::kHashes : CheckDepth::kSizes;
    if (!Check(directory, depth).ok()) continue;
    if (++complete <= std::max(keep, 1)) continue;
    // Renamed first: a half-removed directory must not keep a name that resume looks at.
    const std::string doomed =
        absl::StrCat(parent, "/.", found.name, kTemporaryMark, RandomSuffix());
    if (rename(directory.c_str(), doomed.c_str()) != 0) {
      return ErrnoStatus(errno, absl::StrCat("cannot remove ", directory));
    }
    Remove(doomed);
  }
  return absl::OkStatus();
}

}  // namespace blockswap::worker
