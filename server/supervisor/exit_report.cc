// SPDX-License-Identifier: Apache-2.0
#include "server/supervisor/exit_report.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "server/base/redaction.h"
#include "server/base/unique_fd.h"
#include "server/jobs/transitions.h"

namespace blockswap::server {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxBytes = 64 << 10;

std::string ReadSmallFile(const std::string& path) {
  // The directory is the worker's: what lies there may be anything.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat facts {};
  if (!file.valid() || ::fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) return "";
  std::string text(kMaxBytes, '\0');
  const ssize_t got = ::read(file.get(), text.data(), text.size());
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return text;
}

std::string Text(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::optional<int64_t> Number(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<int64_t>();
}

}  // namespace

std::optional<ExitingUpdate> ReadExitReport(const std::string& output_directory, int attempt) {
  const Json json = Json::parse(ReadSmallFile(absl::StrCat(output_directory, "/exit.json")),
                                nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || Number(json, "attempt") != attempt) return std::nullopt;
  const std::optional<int64_t> code = Number(json, "exit_code");
  if (!code.has_value() || *code < 0 || *code > 255) return std::nullopt;
  ExitingUpdate report;
  report.exit_code = static_cast<int>(*code);
  report.step = Number(json, "step").value_or(0);
  report.adapter_file = Text(json, "adapter_file");
  report.failure.category = ParseCategory(Text(json, "category"));
  report.failure.reason = Text(json, "reason");
  report.failure.message = WithoutSecrets(Text(json, "message"));
  report.failure.exit_code = report.exit_code;
  report.failure.step = report.step;
  return report;
}

}  // namespace blockswap::server
