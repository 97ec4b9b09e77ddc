// SPDX-License-Identifier: Apache-2.0
#include "proto/endpoint/default_endpoint.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace blockswap::proto {
namespace {

std::string AbsolutePathVariable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && value[0] == '/' ? std::string(value) : std::string();
}

}  // namespace

std::string DefaultStateDirectory() {
  const std::string state_home = AbsolutePathVariable("XDG_STATE_HOME");
  if (!state_home.empty()) return absl::StrCat(state_home, "/blockswap");
  const std::string home = AbsolutePathVariable("HOME");
  if (!home.empty()) return absl::StrCat(home, "/.local/state/blockswap");
  return "/var/lib/blockswap";
}

std::string DefaultSocketPath(const std::string& state_directory) {
  const std::string runtime = AbsolutePathVariable("XDG_RUNTIME_DIR");
  if (!runtime.empty()) return absl::StrCat(runtime, "/blockswap/blockswapd.sock");
  return absl::StrCat(state_directory, "/blockswapd.sock");
}

std::string DefaultServerTarget() {
  return absl::StrCat("unix:", DefaultSocketPath(DefaultStateDirectory()));
}

}  // namespace blockswap::proto
