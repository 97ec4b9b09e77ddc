// SPDX-License-Identifier: Apache-2.0
// Turns what a caller shows (a token, a certificate, the Unix socket) into an identity.
#ifndef BLOCKSWAP_SERVER_AUTH_AUTHENTICATOR_H_
#define BLOCKSWAP_SERVER_AUTH_AUTHENTICATOR_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/auth/identity.h"
#include "server/auth/token_table.h"

namespace blockswap::server {

// What a call shows, whatever it came over.
struct Credentials {
  std::string authorization;  // "Bearer bst_...", or empty
  bool is_unix = false;       // over the Unix socket: file permissions let the caller in
  // Names of the verified client certificate: its URIs, then its common name.
  std::vector<std::string> certificate_names;
};

// How the metrics name a refusal: token_missing, token_invalid, token_expired, certificate,
// access_denied, other. Empty where who called was not the matter.
std::string AuthFailureLabel(const absl::Status& status);

// Certificate name to identity, from "spiffe://site/ci=submitter:vision". InvalidArgument names the
// entry that is not of this form.
absl::StatusOr<std::map<std::string, Identity>> ParseClientIdentities(
    const std::vector<std::string>& entries);

// Thread safety: safe.
class Authenticator final {
 public:
  Authenticator(TokenTable& tokens, std::map<std::string, Identity> certificates)
      : tokens_(tokens), certificates_(std::move(certificates)) {}

  // A token decides where there is one, also on the Unix socket: it narrows what the socket would
  // allow. Unauthenticated: TOKEN_MISSING, TOKEN_INVALID, TOKEN_EXPIRED, CERTIFICATE_UNKNOWN.
  absl::StatusOr<Identity> Identify(const Credentials& credentials) const;

  // False once the token was revoked or has expired; what has no token is always valid.
  bool IsValid(const Identity& identity) const {
    return identity.token_id == 0 || tokens_.IsValid(identity.token_id);
  }

  TokenTable& tokens() const { return tokens_; }

 private:
  TokenTable& tokens_;
  const std::map<std::string, Identity> certificates_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_AUTH_AUTHENTICATOR_H_
