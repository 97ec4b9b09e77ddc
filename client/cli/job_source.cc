// SPDX-License-Identifier: Apache-2.0
#include "client/cli/job_source.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <istream>

#include "absl/strings/str_cat.h"
#include "proto/job_file/job_file.h"
#include "proto/job_file/yaml_tree.h"

namespace blockswap::cli {
namespace {

// One byte more than the limit, so that the parser sees that it is exceeded.
std::string ReadBounded(std::istream& stream) {
  std::string text(proto::kMaxYamlBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(stream.gcount()));
  return text;
}

absl::StatusOr<std::string> ReadSource(const std::string& file) {
  if (file == "-") return ReadBounded(std::cin);
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  if (!stream.good()) {
    return absl::UnknownError(
        absl::StrCat("cannot read job file ", file, ": ", std::strerror(errno)));
  }
  return ReadBounded(stream);
}

}  // namespace

absl::StatusOr<LoadedJob> LoadJob(const JobSource& source) {
  absl::StatusOr<std::string> text = ReadSource(source.file);
  if (!text.ok()) return text.status();
  LoadedJob job;
  std::vector<proto::JobFileFault> faults;
  absl::StatusOr<v1::JobSpec> spec = proto::ParseJobFile(*text, &faults);
  if (!spec.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(source.file, ": ", spec.status().message()));
  }
  job.spec = *std::move(spec);
  for (const proto::JobFileFault& fault : faults)
    job.violations.push_back({fault.field, fault.description});
  for (const std::string& assignment : source.overrides) {
    const absl::Status status = proto::ApplyOverride(assignment, &job.spec);
    if (!status.ok())
      job.violations.push_back({absl::StrCat("--set ", assignment), std::string(status.message())});
  }
  return job;
}

}  // namespace blockswap::cli
