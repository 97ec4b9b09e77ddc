// SPDX-License-Identifier: Apache-2.0
// Finds what looks like a secret in text.
#ifndef BLOCKSWAP_SERVER_BASE_SECRET_FINDER_H_
#define BLOCKSWAP_SERVER_BASE_SECRET_FINDER_H_

#include <cstddef>
#include <optional>

#include "absl/strings/string_view.h"

namespace blockswap::server {

struct FoundSecret {
  size_t begin = 0, length = 0;  // without what it is known by ("bst_", "Bearer ")
  // A token, or a password in a URL; else what follows "Bearer ", which in a person's words may be
  // any noun.
  bool is_certain = false;
};

// The first from `from` on: what follows "bst_" (our tokens), "hf_" (Hugging Face),
// "Bearer ", and the password in "scheme://user:password@host". Words too short to be secrets are
// none.
std::optional<FoundSecret> FindSecret(absl::string_view text, size_t from);

// Whether a certain one is in it.
bool HoldsSecret(absl::string_view text);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_BASE_SECRET_FINDER_H_
