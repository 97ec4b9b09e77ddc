// SPDX-License-Identifier: Apache-2.0
// The files of the built-in page, which are part of the program.
#ifndef BLOCKSWAP_SERVER_WEB_PAGE_FILES_H_
#define BLOCKSWAP_SERVER_WEB_PAGE_FILES_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace blockswap::server {

struct PageFile {
  absl::string_view path;  // "/app.js"
  absl::string_view type;
  absl::string_view content;
};

// Made from server/web/page/ when the program is built.
absl::Span<const PageFile> PageFiles();

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_WEB_PAGE_FILES_H_
