// SPDX-License-Identifier: Apache-2.0
#include "worker/train/output_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "offload/base/status_macros.h"
#include "worker/io/atomic_file.h"

namespace blockswap::worker {
namespace {

namespace fs = std::filesystem;

std::string ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// The first thing in `path` that a job would overwrite, or empty.
std::string OutputsIn(const std::string& path, const std::string& adapter_name) {
  for (const char* name : {"metrics.jsonl", "plan.json", "checkpoints", "samples"}) {
    std::error_code error;
    if (fs::exists(fs::path(path) / name, error)) return name;
  }
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    const std::string name = entry.path().filename().string();
    if (name == adapter_name + ".safetensors" || name.rfind(adapter_name + "-step", 0) == 0)
      return name;
  }
  return "";
}

absl::Status CheckOwner(const std::string& path, const std::string& adapter_name,
                        const JobIdentity& identity) {
  const std::string marker = path + "/job.json";
  std::error_code error;
  if (!fs::exists(marker, error)) {
    const std::string found = OutputsIn(path, adapter_name);
    if (found.empty()) return absl::OkStatus();
    return absl::AlreadyExistsError(absl::StrCat(
        "output directory ", path, " holds ", found,
        " of an unknown job and nothing there is overwritten; give an empty directory"));
  }
  const std::string difference =
      DescribeDifference(OutputDirectory::RecordedIdentity(path), identity);
  if (difference.empty()) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("output directory ", path, " belongs to a job with another result: ", difference,
                   "; give another directory, or the same settings to continue that job"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<OutputDirectory>> OutputDirectory::Claim(
    const std::string& path, const std::string& adapter_name, const JobIdentity& identity) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error)
    return absl::InvalidArgumentError(
        absl::StrCat("cannot make output directory ", path, ": ", error.message()));
  const int lock = open((path + "/.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot write to output directory ", path, ": ", std::strerror(errno)));
  }
  std::unique_ptr<OutputDirectory> directory(new OutputDirectory(path, adapter_name, lock));
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("output directory ", path, " is in use by another process"));
  }
  BLOCKSWAP_RETURN_IF_ERROR(CheckOwner(path, adapter_name, identity));
  RemoveStaleTemporaries(path);  // of an attempt that was killed while it saved
  BLOCKSWAP_RETURN_IF_ERROR(
      WriteFileAtomically(path + "/job.json", IdentityToJson(identity) + "\n"));
  for (const std::string& child : {directory->checkpoints(), directory->samples()}) {
    fs::create_directories(child, error);
    if (error)
      return absl::InvalidArgumentError(absl::StrCat("cannot make ", child, ": ", error.message()));
  }
  return directory;
}

JobIdentity OutputDirectory::RecordedIdentity(const std::string& path) {
  return IdentityFromJson(ReadText(path + "/job.json"));
}

OutputDirectory::~OutputDirectory() { close(lock_); }

std::string OutputDirectory::adapter_file() const {
  return absl::StrCat(path_, "/", adapter_name_, ".safetensors");
}

std::string OutputDirectory::adapter_file_of_step(int64_t step) const {
  return absl::StrFormat("%s/%s-step%08d.safetensors", path_, adapter_name_, step);
}

}  // namespace blockswap::worker
