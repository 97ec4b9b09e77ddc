// SPDX-License-Identifier: Apache-2.0
#include "server/auth/authenticator.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/base/reason.h"

namespace blockswap::server {
namespace {

constexpr char kScheme[] = "Bearer ";

}  // namespace

std::string AuthFailureLabel(const absl::Status& status) {
  if (!absl::IsUnauthenticated(status) && !absl::IsPermissionDenied(status)) return "";
  const std::string reason = ReasonOf(status);
  if (reason == "CERTIFICATE_UNKNOWN") return "certificate";
  for (const char* known : {"TOKEN_MISSING", "TOKEN_INVALID", "TOKEN_EXPIRED", "ACCESS_DENIED"}) {
    if (reason == known) return absl::AsciiStrToLower(reason);
  }
  return "other";
}

absl::StatusOr<std::map<std::string, Identity>> ParseClientIdentities(
    const std::vector<std::string>& entries) {
  std::map<std::string, Identity> identities;
  for (const std::string& entry : entries) {
    // From the right: the name of a certificate may hold both characters.
    const size_t equals = entry.rfind('=');
    const std::vector<std::string> parts =
        absl::StrSplit(equals == std::string::npos ? "" : entry.substr(equals + 1), ':');
    const auto role = ParseRole(parts[0]);
    const std::string tenant = parts.size() > 1 ? parts[1] : kDefaultTenant;
    const bool tenant_fits =
        IsValidTenant(tenant) || (tenant == kAllTenants && role == Role::kViewer);
    if (equals == std::string::npos || equals == 0 || parts.size() > 2 || !role.has_value() ||
        !tenant_fits) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", entry, "\" is not NAME=ROLE or NAME=ROLE:TENANT, as in ",
          "spiffe://site/ci=submitter:vision (roles: viewer, submitter, operator, admin)"));
    }
    Identity identity;
    identity.name = entry.substr(0, equals);
    identity.role = *role;
    identity.tenant = tenant;
    identity.source = "certificate";
    identities[identity.name] = identity;
  }
  return identities;
}

absl::StatusOr<Identity> Authenticator::Identify(const Credentials& credentials) const {
  if (!credentials.authorization.empty()) {
    if (!absl::StartsWithIgnoreCase(credentials.authorization, kScheme)) {
      return WithReason(absl::UnauthenticatedError(
                            "authorization: is not \"Bearer TOKEN\"; other schemes are not taken"),
                        "TOKEN_INVALID");
    }
    return tokens_.Find(credentials.authorization.substr(sizeof(kScheme) - 1));
  }
  for (const std::string& name : credentials.certificate_names) {
    const auto found = certificates_.find(name);
    if (found != certificates_.end()) return found->second;
  }
  if (credentials.is_unix) {
    Identity identity;
    identity.name = "unix";
    identity.role = Role::kAdmin;
    identity.source = "unix";
    return identity;
  }
  if (!credentials.certificate_names.empty()) {
    return WithReason(absl::UnauthenticatedError(absl::StrCat(
                          "the client certificate of ", credentials.certificate_names.front(),
                          " is in no entry of client_identities")),
                      "CERTIFICATE_UNKNOWN");
  }
  return WithReason(
      absl::UnauthenticatedError("this call needs a token: send authorization: Bearer TOKEN "
                                 "(blockswap --token-file FILE, or BLOCKSWAP_TOKEN_FILE)"),
      "TOKEN_MISSING");
}

}  // namespace blockswap::server
