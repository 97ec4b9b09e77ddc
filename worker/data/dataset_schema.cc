// SPDX-License-Identifier: Apache-2.0
#include "worker/data/dataset_schema.h"

namespace blockswap::worker {
namespace {

constexpr char kVideo[] = "video data sets";
constexpr char kControl[] = "control images";
constexpr char kLayers[] = "several targets to an item";
constexpr char kFramePack[] = "FramePack settings";

constexpr KeyRule kKeys[] = {
    {"resolution", KeyType::kResolution, KeyPlace::kAnywhere, nullptr},
    {"caption_extension", KeyType::kText, KeyPlace::kAnywhere, nullptr},
    {"batch_size", KeyType::kCount, KeyPlace::kAnywhere, nullptr},
    {"num_repeats", KeyType::kCount, KeyPlace::kAnywhere, nullptr},
    {"enable_bucket", KeyType::kFlag, KeyPlace::kAnywhere, nullptr},
    {"bucket_no_upscale", KeyType::kFlag, KeyPlace::kAnywhere, nullptr},
    {"image_directory", KeyType::kText, KeyPlace::kDatasetOnly, nullptr},
    {"image_jsonl_file", KeyType::kText, KeyPlace::kDatasetOnly, nullptr},
    {"cache_directory", KeyType::kText, KeyPlace::kDatasetOnly, nullptr},
    {"video_directory", KeyType::kUnread, KeyPlace::kDatasetOnly, kVideo},
    {"video_jsonl_file", KeyType::kUnread, KeyPlace::kDatasetOnly, kVideo},
    {"target_frames", KeyType::kUnread, KeyPlace::kDatasetOnly, kVideo},
    {"frame_extraction", KeyType::kUnread, KeyPlace::kDatasetOnly, kVideo},
    {"frame_stride", KeyType::kUnread, KeyPlace::kDatasetOnly, kVideo},
    {"frame_sample", KeyType::kUnread, KeyPlace::kDatasetOnly, kVideo},
    {"max_frames", KeyType::kUnread, KeyPlace::kDatasetOnly, kVideo},
    {"source_fps", KeyType::kUnread, KeyPlace::kDatasetOnly, kVideo},
    {"control_directory", KeyType::kUnread, KeyPlace::kDatasetOnly, kControl},
    {"control_resolution", KeyType::kUnread, KeyPlace::kDatasetOnly, kControl},
    {"no_resize_control", KeyType::kUnread, KeyPlace::kDatasetOnly, kControl},
    {"flux_kontext_no_resize_control", KeyType::kUnread, KeyPlace::kDatasetOnly, kControl},
    {"qwen_image_edit_no_resize_control", KeyType::kUnread, KeyPlace::kDatasetOnly, kControl},
    {"qwen_image_edit_control_resolution", KeyType::kUnread, KeyPlace::kDatasetOnly, kControl},
    {"multiple_target", KeyType::kUnread, KeyPlace::kDatasetOnly, kLayers},
    {"fp_latent_window_size", KeyType::kUnread, KeyPlace::kDatasetOnly, kFramePack},
    {"fp_1f_clean_indices", KeyType::kUnread, KeyPlace::kDatasetOnly, kFramePack},
    {"fp_1f_target_index", KeyType::kUnread, KeyPlace::kDatasetOnly, kFramePack},
    {"fp_1f_no_post", KeyType::kUnread, KeyPlace::kDatasetOnly, kFramePack},
};

}  // namespace

absl::Span<const KeyRule> DatasetKeys() { return kKeys; }

const KeyRule* FindKey(const std::string& name) {
  for (const KeyRule& rule : kKeys) {
    if (name == rule.name) return &rule;
  }
  return nullptr;
}

std::vector<std::string> KeysOf(bool general) {
  std::vector<std::string> names;
  for (const KeyRule& rule : kKeys) {
    if (rule.unavailable == nullptr && (!general || rule.place == KeyPlace::kAnywhere)) {
      names.emplace_back(rule.name);
    }
  }
  return names;
}

const char* ExpectedOf(KeyType type) {
  switch (type) {
    case KeyType::kCount:
      return "a whole number from 1 to 1000000";
    case KeyType::kText:
      return "text in quotes";
    case KeyType::kFlag:
      return "true or false";
    case KeyType::kResolution:
      return "a whole number from 16 to 65536 or two of them, [width, height]";
    case KeyType::kUnread:
      return "nothing";
  }
  return "";
}

}  // namespace blockswap::worker
