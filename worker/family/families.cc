// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "offload/base/nearest_name.h"
#include "worker/family/family.h"
#include "worker/family/qwen_image_family.h"
#include "worker/io/json_text.h"

namespace blockswap::worker {

absl::Span<const Family* const> AllFamilies() {
  static const QwenImageFamily qwen_image;
  static const Family* const families[] = {&qwen_image};
  return families;
}

absl::StatusOr<const Family*> FindFamily(absl::string_view name) {
  std::vector<std::string> names;
  for (const Family* family : AllFamilies()) {
    if (family->name() == name) return family;
    const absl::string_view known = family->name();
    names.emplace_back(known.data(), known.size());
  }
  const std::string nearest = base::NearestName(std::string(name.data(), name.size()), names);
  return absl::InvalidArgumentError(
      absl::StrCat("unknown architecture ", Quoted(name),
                   nearest.empty() ? "" : absl::StrCat(", did you mean \"", nearest, "\"?"),
                   " (available: ", absl::StrJoin(names, ", "), ")"));
}

absl::StatusOr<const Family*> DetectFamily(const CheckpointSource& source) {
  std::vector<std::string> names;
  for (const Family* family : AllFamilies()) {
    if (family->Recognises(source)) return family;
    const absl::string_view known = family->name();
    names.emplace_back(known.data(), known.size());
  }
  std::vector<std::string> examples;
  for (const auto& [name, tensor] : source.tensors()) {
    if (examples.size() == 2) break;
    examples.push_back(Quoted(name));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      source.path(), " is of no known architecture\n  ", source.tensors().size(),
      " tensors, such as ", examples.empty() ? "none" : absl::StrJoin(examples, " and "),
      "\n  known architectures: ", absl::StrJoin(names, ", ")));
}

}  // namespace blockswap::worker
