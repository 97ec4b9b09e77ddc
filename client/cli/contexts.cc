// SPDX-License-Identifier: Apache-2.0
#include "client/cli/contexts.h"

#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "offload/base/nearest_name.h"
#include "offload/base/status_macros.h"

namespace blockswap::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFile = size_t{1} << 20, kMaxName = 63;

std::string DidYouMean(const std::string& word, const std::vector<std::string>& names) {
  const std::string nearest = base::NearestName(word, names);
  return nearest.empty() ? "" : absl::StrCat(", did you mean '", nearest, "'?");
}

absl::Status Wrong(const std::string& file, const YAML::Mark& mark, const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat(file, mark.is_null() ? "" : absl::StrCat(" line ", mark.line + 1), ": ", what));
}

absl::StatusOr<Endpoint> ReadContext(const std::string& file, const YAML::Node& node) {
  if (!node.IsMap()) return Wrong(file, node.Mark(), "a context is a map with server and files");
  Endpoint context;
  for (const auto& entry : node) {
    const std::string key = entry.first.Scalar();
    std::vector<std::string> keys;
    std::string Endpoint::*field = nullptr;
    for (const EndpointSetting& setting : EndpointSettings()) {
      if (setting.field == &Endpoint::context) continue;
      keys.push_back(setting.key);
      if (key == setting.key) field = setting.field;
    }
    if (field == nullptr) {
      // Says the key alone: a secret may have been written behind it.
      return Wrong(file, entry.first.Mark(),
                   absl::StrCat("no setting '", key, "' in a context", DidYouMean(key, keys)));
    }
    if (!entry.second.IsScalar()) {
      return Wrong(file, entry.second.Mark(), absl::StrCat(key, " is not text"));
    }
    context.*field = entry.second.Scalar();
  }
  if (context.server.empty()) return Wrong(file, node.Mark(), "the context has no server");
  return context;
}

absl::StatusOr<Contexts> FromYaml(const std::string& file, const YAML::Node& root) {
  Contexts contexts;
  if (root.IsNull()) return contexts;
  if (!root.IsMap()) return Wrong(file, root.Mark(), "is no map with current and contexts");
  for (const auto& entry : root) {
    const std::string key = entry.first.Scalar();
    if (key == "current" && entry.second.IsScalar()) {
      contexts.current = entry.second.Scalar();
    } else if (key == "contexts" && entry.second.IsMap()) {
      for (const auto& each : entry.second) {
        BLOCKSWAP_RETURN_IF_ERROR(CheckContextName(each.first.Scalar()));
        BLOCKSWAP_ASSIGN_OR_RETURN(contexts.by_name[each.first.Scalar()],
                                   ReadContext(file, each.second));
      }
    } else {
      return Wrong(file, entry.first.Mark(),
                   absl::StrCat("no setting '", key, "' of this form",
                                DidYouMean(key, {"current", "contexts"})));
    }
  }
  return contexts;
}

absl::Status CannotWrite(const std::string& file, int error) {
  return absl::FailedPreconditionError(
      absl::StrCat("cannot write the contexts to ", file, ": ", std::strerror(error)));
}

std::string ToYaml(const Contexts& contexts) {
  YAML::Emitter out;
  out << YAML::BeginMap << YAML::Key << "current" << YAML::Value << contexts.current;
  out << YAML::Key << "contexts" << YAML::Value << YAML::BeginMap;
  for (const auto& [name, context] : contexts.by_name) {
    out << YAML::Key << name << YAML::Value << YAML::BeginMap;
    for (const EndpointSetting& setting : EndpointSettings()) {
      const std::string& value = context.*setting.field;
      if (setting.field == &Endpoint::context || value.empty()) continue;
      out << YAML::Key << setting.key << YAML::Value << YAML::DoubleQuoted << value;
    }
    out << YAML::EndMap;
  }
  out << YAML::EndMap << YAML::EndMap;
  return absl::StrCat("# Written by blockswap context; holds names of files, never a secret.\n",
                      out.c_str(), "\n");
}

// Writes and syncs all of `text`; 0 or errno.
int WriteAll(int descriptor, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t size = ::write(descriptor, text.data() + done, text.size() - done);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return errno;
    done += static_cast<size_t>(size);
  }
  return ::fsync(descriptor) == 0 ? 0 : errno;
}

}  // namespace

std::string DefaultContextsFile() {
  const char* config = std::getenv("XDG_CONFIG_HOME");
  if (config != nullptr && config[0] == '/')
    return absl::StrCat(config, "/blockswap/contexts.yaml");
  const char* home = std::getenv("HOME");
  if (home == nullptr || home[0] != '/') return "";
  return absl::StrCat(home, "/.config/blockswap/contexts.yaml");
}

absl::StatusOr<Contexts> ReadContexts(const std::string& file) {
  std::error_code error;
  if (file.empty() || (!fs::exists(file, error) && !error)) return Contexts();
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot open ", file, ": ", std::strerror(errno)));
  }
  if (fs::file_size(file, error) > kMaxFile) {
    return absl::InvalidArgumentError(absl::StrCat(file, " is longer than ", kMaxFile, " bytes"));
  }
  std::ostringstream text;
  text << in.rdbuf();
  try {
    return FromYaml(file, YAML::Load(text.str()));
  } catch (const YAML::Exception& exception) {
    return Wrong(file, exception.mark, absl::StrCat("is no YAML: ", exception.msg));
  }
}

absl::Status WriteContexts(const Contexts& contexts, const std::string& file) {
  if (file.empty()) {
    return absl::FailedPreconditionError(
        "there is no place for contexts: set XDG_CONFIG_HOME or HOME to an absolute path");
  }
  const fs::path directory = fs::path(file).parent_path();
  std::error_code error;
  fs::create_directories(directory.parent_path(), error);
  if (!error && fs::create_directory(directory, error) && !error) {
    fs::permissions(directory, fs::perms::owner_all, error);
  }
  if (error) return CannotWrite(file, error.value());
  std::string temporary = file + ".XXXXXX";
  const int descriptor = ::mkstemp(temporary.data());  // makes it with mode 0600
  if (descriptor < 0) return CannotWrite(file, errno);
  int failed = WriteAll(descriptor, ToYaml(contexts));
  ::close(descriptor);
  if (failed == 0 && ::rename(temporary.c_str(), file.c_str()) != 0) failed = errno;
  if (failed == 0) return absl::OkStatus();
  ::unlink(temporary.c_str());
  return CannotWrite(file, failed);
}

absl::StatusOr<Endpoint> FindContext(const Contexts& contexts, const std::string& name) {
  const auto found = contexts.by_name.find(name);
  if (found != contexts.by_name.end()) return found->second;
  std::vector<std::string> names = {kNoContext};
  for (const auto& each : contexts.by_name) names.push_back(each.first);
  return absl::NotFoundError(absl::StrCat("no context '", name, "'", DidYouMean(name, names),
                                          "; blockswap context list shows all"));
}

absl::Status CheckContextName(const std::string& name) {
  const bool good = !name.empty() && name.size() <= kMaxName && name != kNoContext &&
                    std::all_of(name.begin(), name.end(), [](char c) {
                      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' ||
                             c == '_' || c == '-';
                    });
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a context cannot be called '", name,
                                                 "': letters, digits, '.', '_' and '-', ",
                                                 "at most ", kMaxName, ", and not ", kNoContext));
}

}  // namespace blockswap::cli
