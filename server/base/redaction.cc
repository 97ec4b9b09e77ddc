// SPDX-License-Identifier: Apache-2.0
#include "server/base/redaction.h"

#include <optional>

#include "server/base/secret_finder.h"

namespace blockswap::server {
namespace {

constexpr char kRedacted[] = "[redacted]";

}  // namespace

std::string WithoutSecrets(absl::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  size_t next = 0;
  while (true) {
    const std::optional<FoundSecret> found = FindSecret(text, next);
    const size_t end = found.has_value() ? found->begin : text.size();
    clean.append(text.data() + next, end - next);
    if (!found.has_value()) return clean;
    clean.append(kRedacted);
    next = found->begin + found->length;
  }
}

}  // namespace blockswap::server
