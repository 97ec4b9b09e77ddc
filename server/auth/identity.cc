// SPDX-License-Identifier: Apache-2.0
#include "server/auth/identity.h"

#include "absl/strings/ascii.h"

namespace blockswap::server {

const char* RoleName(Role role) {
  switch (role) {
    case Role::kNone:
      return "none";
    case Role::kViewer:
      return "viewer";
    case Role::kSubmitter:
      return "submitter";
    case Role::kOperator:
      return "operator";
    case Role::kAdmin:
      return "admin";
  }
  return "none";
}

std::optional<Role> ParseRole(absl::string_view name) {
  for (const Role role : {Role::kViewer, Role::kSubmitter, Role::kOperator, Role::kAdmin}) {
    if (name == RoleName(role)) return role;
  }
  return std::nullopt;
}

bool IsValidTenant(absl::string_view tenant) {
  constexpr size_t kMaxTenant = 32;
  if (tenant.empty() || tenant.size() > kMaxTenant || !absl::ascii_islower(tenant[0])) return false;
  for (const char c : tenant) {
    if (!absl::ascii_islower(c) && !absl::ascii_isdigit(c) && c != '-') return false;
  }
  return true;
}

}  // namespace blockswap::server
