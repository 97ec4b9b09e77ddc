// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/template_catalog.h"

#include <fcntl.h>
#include <google/protobuf/util/field_mask_util.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "offload/base/status_macros.h"
#include "proto/job_file/job_file.h"
#include "server/base/log.h"
#include "server/base/reason.h"
#include "server/base/unique_fd.h"
#include "server/rpc/proto_conversion.h"
#include "server/rpc/spec_merge.h"
#include "server/rpc/status_conversion.h"

namespace blockswap::server {
namespace {

constexpr off_t kMaxTemplateBytes = 256 << 10;
constexpr size_t kMaxTemplates = 1000;

absl::Status Invalid(const std::string& name, absl::string_view why) {
  return WithReason(
      absl::FailedPreconditionError(absl::StrCat("template ", name, " cannot be used: ", why,
                                                 "; its file has to be mended by the operator")),
      "TEMPLATE_INVALID", {{"template", name}});
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat facts {};
  if (!file.valid() || ::fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) {
    return absl::FailedPreconditionError("it is no readable file");
  }
  if (facts.st_size > kMaxTemplateBytes) {
    return absl::FailedPreconditionError(absl::StrCat(
        "its file has ", facts.st_size, " bytes, at most ", kMaxTemplateBytes, " are allowed"));
  }
  std::string text(static_cast<size_t>(facts.st_size), '\0');
  const ssize_t got = ::pread(file.get(), text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return text;
}

absl::StatusOr<v1::JobTemplate> Parse(const std::string& name, const std::string& path) {
  const auto text = ReadText(path);
  if (!text.ok()) return Invalid(name, text.status().message());
  std::vector<proto::JobFileFault> faults;
  v1::JobTemplate parsed;
  const absl::Status read = proto::ParseMessageFile(*text, &parsed, &faults);
  if (!read.ok()) return Invalid(name, read.message());
  if (!parsed.name().empty()) {
    faults.push_back({"name", "is the file's name and not given in it"});
  }
  for (const std::string& allowed : parsed.allowed_overrides()) {
    if (!google::protobuf::util::FieldMaskUtil::IsValidPath<v1::JobSpec>(allowed)) {
      faults.push_back({"allowed_overrides", absl::StrCat(allowed, " is no field of a job")});
    }
  }
  if (!faults.empty()) {
    return Invalid(name, absl::StrJoin(faults, "; ", [](std::string* out, const auto& fault) {
                     absl::StrAppend(out, fault.field, ": ", fault.description);
                   }));
  }
  parsed.set_name(absl::StrCat("templates/", name));
  return parsed;
}

// Of files whose name is an id and a known ending, by name.
std::map<std::string, std::string> FilesByName(const std::string& directory) {
  std::map<std::string, std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string ending = entry.path().extension().string();
    const std::string name = entry.path().stem().string();
    if (ending != ".yaml" && ending != ".yml" && ending != ".json") continue;
    if (IsValidJobId(name) && files.size() < kMaxTemplates) files[name] = entry.path().string();
  }
  return files;
}

}  // namespace

std::vector<v1::JobTemplate> TemplateCatalog::List() const {
  std::vector<v1::JobTemplate> templates;
  for (const auto& [name, path] : FilesByName(directory_)) {
    auto parsed = Parse(name, path);
    if (parsed.ok()) {
      templates.push_back(*std::move(parsed));
    } else {
      LogWarning("{}", std::string(parsed.status().message()));
    }
  }
  return templates;
}

absl::StatusOr<v1::JobTemplate> TemplateCatalog::Get(const std::string& name) const {
  const std::string plain(absl::StripPrefix(name, "templates/"));
  const auto files = FilesByName(directory_);
  const auto found = files.find(plain);
  if (found != files.end()) return Parse(plain, found->second);
  std::vector<std::string> names;
  for (const auto& [other, path] : files) names.push_back(other);
  return WithReason(
      absl::NotFoundError(absl::StrCat(
          "no such template: ", plain, "; there ",
          names.empty() ? "are none" : absl::StrCat("are ", absl::StrJoin(names, ", ")))),
      "TEMPLATE_NOT_FOUND", {{"template", plain}});
}

absl::StatusOr<v1::JobSpec> ApplyTemplate(const v1::JobTemplate& job_template,
                                          const v1::JobSpec& given) {
  const std::vector<std::string> allowed(job_template.allowed_overrides().begin(),
                                         job_template.allowed_overrides().end());
  std::vector<std::string> taken, refused;
  for (const std::string& path : SetPaths(given)) {
    if (AgreeAt(path, job_template.spec(), given)) continue;
    (IsWithin(path, allowed) ? taken : refused).push_back(path);
  }
  if (!refused.empty()) {
    return WithReason(
        absl::PermissionDeniedError(
            absl::StrCat(job_template.name(), " does not let ", absl::StrJoin(refused, ", "),
                         " be changed; only ",
                         allowed.empty() ? "nothing" : absl::StrJoin(allowed, ", "), " can be")),
        "OVERRIDE_NOT_ALLOWED",
        {{"fields", absl::StrJoin(refused, ",")}, {"allowed", absl::StrJoin(allowed, ",")}});
  }
  v1::JobSpec spec = job_template.spec();
  TakeOverPaths(taken, given, &spec);
  return spec;
}

}  // namespace blockswap::server
