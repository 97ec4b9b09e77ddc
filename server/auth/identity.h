// SPDX-License-Identifier: Apache-2.0
// Who makes a call and what that person may do.
#ifndef BLOCKSWAP_SERVER_AUTH_IDENTITY_H_
#define BLOCKSWAP_SERVER_AUTH_IDENTITY_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace blockswap::server {

// Each may do all that those before it may.
enum class Role {
  kNone = 0,
  kViewer = 1,     // reads the jobs of its tenant
  kSubmitter = 2,  // makes and changes jobs of its tenant
  kOperator = 3,   // all jobs of all tenants, the queue
  kAdmin = 4,      // devices, settings, tokens
};

const char* RoleName(Role role);
std::optional<Role> ParseRole(absl::string_view name);

// Jobs that were made before tenants, or over the Unix socket without a token.
inline constexpr char kDefaultTenant[] = "default";
// For viewers only: the jobs of all tenants.
inline constexpr char kAllTenants[] = "*";

// Lower-case letters, digits and '-', beginning with a letter, at most 32.
bool IsValidTenant(absl::string_view tenant);

struct Identity {
  std::string name;  // of the token, of the certificate, or "uid:1000"
  Role role = Role::kNone;
  std::string tenant = kDefaultTenant;  // of the jobs it makes
  int64_t token_id = 0;                 // 0: not by token
  std::string source;                   // "unix", "token", "certificate"

  bool sees_all_tenants() const { return role >= Role::kOperator || tenant == kAllTenants; }
  bool Sees(absl::string_view job_tenant) const {
    return sees_all_tenants() || tenant == job_tenant;
  }
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_AUTH_IDENTITY_H_
