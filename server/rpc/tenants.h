// SPDX-License-Identifier: Apache-2.0
// What keeps the tenants of one server apart: their directories and their request ids.
#ifndef BLOCKSWAP_SERVER_RPC_TENANTS_H_
#define BLOCKSWAP_SERVER_RPC_TENANTS_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "server/auth/identity.h"

namespace blockswap::server {

// Everything the tenant's jobs write lies below it. No job id has an '@': the directories of
// tenants and those of the default tenant's jobs cannot meet.
inline std::string TenantOutputs(const std::string& outputs_root, const std::string& tenant) {
  return tenant == kDefaultTenant ? outputs_root : absl::StrCat(outputs_root, "/@", tenant);
}

// A request id answers the job it made: for another tenant the same id is another one.
inline std::string RequestIdOfTenant(const std::string& request_id, const std::string& tenant) {
  if (request_id.empty() || tenant == kDefaultTenant) return request_id;
  return absl::StrCat("@", tenant, "/", request_id);
}

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_TENANTS_H_
