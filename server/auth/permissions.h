// SPDX-License-Identifier: Apache-2.0
// The one table that says which role each call needs.
#ifndef BLOCKSWAP_SERVER_AUTH_PERMISSIONS_H_
#define BLOCKSWAP_SERVER_AUTH_PERMISSIONS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/auth/identity.h"

namespace blockswap::server {

struct Permission {
  const char* method;  // "TrainingService/CreateJob"
  Role least;
  bool names_job = false;  // the request names one, which must be the caller's tenant's
};

const std::vector<Permission>& Permissions();

// Null for a call without a row: nobody may make it.
const Permission* FindPermission(absl::string_view method);

// PermissionDenied ACCESS_DENIED: says which role the caller has and which the call needs.
absl::Status CheckPermission(absl::string_view method, const Identity& identity);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_AUTH_PERMISSIONS_H_
