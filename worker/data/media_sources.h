// SPDX-License-Identifier: Apache-2.0
// Lists the items a data set declares: the images of a folder with their captions, or the lines of
// a JSONL file.
#ifndef BLOCKSWAP_WORKER_DATA_MEDIA_SOURCES_H_
#define BLOCKSWAP_WORKER_DATA_MEDIA_SOURCES_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace blockswap::worker {

struct DeclaredItem {
  std::string name;    // file name without directory and extension: what caches are named after
  std::string source;  // for messages: the image's path or "captions.jsonl line 3"
  std::optional<std::string>
      caption;  // trimmed; absent where no caption is kept or its file is missing
  bool caption_missing = false;
};

// Images (png, jpg, jpeg, webp, bmp, avif, jxl) sorted by name. With a caption extension each needs
// a caption file beside it. InvalidArgument: two images of one base name, whose caches would be one
// file.
absl::StatusOr<std::vector<DeclaredItem>> ItemsOfDirectory(const std::string& directory,
                                                           const std::string& caption_extension);

// One JSON object a line with image_path and caption. InvalidArgument with the line's number.
absl::StatusOr<std::vector<DeclaredItem>> ItemsOfJsonl(const std::string& path);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_DATA_MEDIA_SOURCES_H_
