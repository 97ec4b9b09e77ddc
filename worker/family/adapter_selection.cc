// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <regex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "offload/base/status_macros.h"
#include "worker/family/family.h"
#include "worker/io/json_text.h"

namespace blockswap::worker {
namespace {

constexpr size_t kLongestPattern = 512;
constexpr size_t kCandidates = 5;

class Patterns {
 public:
  static absl::StatusOr<Patterns> Compile(const std::vector<std::string>& texts) {
    Patterns patterns;
    for (const std::string& text : texts) {
      if (text.size() > kLongestPattern) {
        return absl::InvalidArgumentError(absl::StrCat("pattern ", Quoted(text), " has ",
                                                       text.size(), " characters, at most ",
                                                       kLongestPattern, " are allowed"));
      }
      // The library reports a bad pattern by exception only. Polynomial: without it a pattern such
      // as (a*)*b takes exponential time; the price is that back references are refused.
      try {
        patterns.list_.emplace_back(
            text, std::regex_constants::ECMAScript | std::regex_constants::__polynomial);
      } catch (const std::regex_error& error) {
        return absl::InvalidArgumentError(absl::StrCat(
            "pattern ", Quoted(text), " is no valid regular expression: ", error.what()));
      }
    }
    return patterns;
  }

  bool Fit(const std::string& path) const {
    return std::any_of(list_.begin(), list_.end(),
                       [&](const std::regex& pattern) { return std::regex_match(path, pattern); });
  }

 private:
  std::vector<std::regex> list_;
};

std::string KeyOf(const std::string& path) {
  return absl::StrCat("lora_unet_", absl::StrReplaceAll(path, {{".", "_"}}));
}

absl::Status NoModuleError(const ModelDescription& model, const NetworkConfig& network) {
  std::vector<std::string> candidates;
  int64_t count = 0;
  for (const DescribedBlock& block : model.blocks) {
    for (const AdapterTarget& target : block.linears) {
      if (++count <= static_cast<int64_t>(kCandidates)) candidates.push_back(target.path);
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the patterns leave no module to train: ", network.exclude_patterns.size(),
                   " exclude and ", network.include_patterns.size(), " include patterns, ", count,
                   " candidates such as ", absl::StrJoin(candidates, ", "),
                   "; a pattern must fit a whole path, and an include pattern only takes back what "
                   "is excluded"));
}

}  // namespace

int64_t AdapterLayout::num_parameters() const {
  int64_t count = 0;
  for (const AdapterModule& module : modules) {
    count += module.rank * (module.target.in_features + module.target.out_features);
  }
  return count;
}

absl::StatusOr<AdapterLayout> SelectAdapterModules(const ModelDescription& model,
                                                   const Family& family,
                                                   const NetworkConfig& network) {
  std::vector<std::string> excluded = network.exclude_patterns;
  for (std::string& pattern : family.DefaultExcludePatterns())
    excluded.push_back(std::move(pattern));
  BLOCKSWAP_ASSIGN_OR_RETURN(const Patterns exclude, Patterns::Compile(excluded));
  BLOCKSWAP_ASSIGN_OR_RETURN(const Patterns include, Patterns::Compile(network.include_patterns));
  AdapterLayout layout;
  for (const DescribedBlock& block : model.blocks) {
    for (const AdapterTarget& target : block.linears) {
      if (exclude.Fit(target.path) && !include.Fit(target.path)) continue;
      layout.modules.push_back({target, KeyOf(target.path), network.rank, network.alpha});
    }
  }
  if (layout.modules.empty()) return NoModuleError(model, network);
  return layout;
}

}  // namespace blockswap::worker
