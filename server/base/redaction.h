// SPDX-License-Identifier: Apache-2.0
// Takes secrets out of text that goes into logs.
#ifndef BLOCKSWAP_SERVER_BASE_REDACTION_H_
#define BLOCKSWAP_SERVER_BASE_REDACTION_H_

#include <string>

#include "absl/strings/string_view.h"

namespace blockswap::server {

// What follows "bst_" (our tokens), "hf_" (Hugging Face), "Bearer ", and the password in a URL
// "scheme://user:password@host" becomes "[redacted]". Words too short to be secrets stay.
std::string WithoutSecrets(absl::string_view text);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_BASE_REDACTION_H_
