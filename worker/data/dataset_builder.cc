// SPDX-License-Identifier: Apache-2.0
#include "worker/data/dataset_builder.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "offload/base/byte_size.h"
#include "offload/base/status_macros.h"
#include "worker/io/json_text.h"
#include "worker/io/regular_file.h"
#include "worker/io/rooted_path.h"

namespace blockswap::worker {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxTomlBytes = base::kMiB;
constexpr size_t kExamples = 3;

std::string FirstOf(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kExamples);
  return absl::StrCat(
      absl::StrJoin(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
      shown < names.size() ? ", ..." : "");
}

std::string SizeText(int64_t width, int64_t height) { return absl::StrCat(width, "x", height); }

}  // namespace

DatasetBuilder::DatasetBuilder(const std::string& toml_path, const std::string& root,
                               const Family& family, const ModelDescription& model,
                               MissingPolicy policy, std::vector<FieldViolation>* violations)
    : toml_path_(toml_path),
      root_(root),
      family_(family),
      model_(model),
      policy_(policy),
      violations_(violations),
      dataset_(new Dataset) {}

void DatasetBuilder::Violate(int index, const std::string& key, const std::string& what) {
  violations_->push_back(
      {absl::StrCat("dataset.config.datasets[", index, "]", key.empty() ? "" : ".", key), what});
}

std::optional<std::string> DatasetBuilder::Resolve(int index, const char* key,
                                                   const std::string& path) {
  // Relative to the TOML: a data set can be moved as a whole.
  std::string beside = path;
  if (path.empty() || path[0] != '/') {
    beside = absl::StrCat(fs::path(toml_path_).parent_path().string(), "/", path);
  }
  const auto resolved = ResolveBelow(root_, beside);
  if (resolved.ok()) return *resolved;
  const bool outside = absl::IsPermissionDenied(resolved.status());
  Violate(index, key,
          outside ? absl::StrCat("path ", Quoted(path),
                                 " leads outside the datasets root or may not be opened")
                  : absl::StrCat("cannot open ", Quoted(path), ": no such file or directory"));
  return std::nullopt;
}

std::optional<DatasetBuilder::Source> DatasetBuilder::OpenSource(int index,
                                                                 const DatasetTable& table) {
  Source source;
  source.index = index;
  source.table = table;
  const std::string& media = table.image_directory;
  const auto cache_directory = table.cache_directory.empty()
                                   ? Resolve(index, "image_directory", media)
                                   : Resolve(index, "cache_directory", table.cache_directory);
  if (!cache_directory.has_value()) return std::nullopt;
  const absl::string_view short_name = family_.musubi_short_name();
  auto caches = ListCaches(*cache_directory, std::string(short_name.data(), short_name.size()));
  absl::StatusOr<std::vector<DeclaredItem>> declared = std::vector<DeclaredItem>();
  const char* key = "image_directory";
  if (!media.empty() || !table.image_jsonl_file.empty()) {
    key = media.empty() ? "image_jsonl_file" : "image_directory";
    const auto path = Resolve(index, key, media.empty() ? table.image_jsonl_file : media);
    if (!path.has_value()) return std::nullopt;
    declared =
        media.empty() ? ItemsOfJsonl(*path) : ItemsOfDirectory(*path, table.caption_extension);
    if (declared.ok()) source.declared = *std::move(declared);
  }
  if (!declared.ok() || !caches.ok()) {
    const absl::Status& status = declared.ok() ? caches.status() : declared.status();
    const absl::string_view why = status.message();
    Violate(index, declared.ok() ? "cache_directory" : key, std::string(why.data(), why.size()));
    return std::nullopt;
  }
  source.caches = *std::move(caches);
  return source;
}

// By what the folders are, not by how they are spelled: a link or a "./" would let one item count
// twice.
void DatasetBuilder::RefuseSharedFolders(const std::vector<Source>& sources) {
  std::map<std::pair<dev_t, ino_t>, int> seen;
  for (const Source& source : sources) {
    struct stat info;
    if (stat(source.caches.path.c_str(), &info) != 0) continue;  // listed a moment ago
    const auto [first, inserted] = seen.emplace(std::pair(info.st_dev, info.st_ino), source.index);
    if (inserted) continue;
    Violate(source.index, "cache_directory",
            absl::StrCat("is the same folder as that of datasets[", first->second,
                         "]: each data set needs its own"));
  }
}

void DatasetBuilder::CheckResolution(const Source& source) {
  const int64_t step = model_.vae_scale * model_.patch;
  const DatasetTable& table = source.table;
  if (table.enable_bucket) {
    const auto buckets = BucketResolutions(table.width, table.height, step);
    if (!buckets.ok()) {
      const absl::string_view why = buckets.status().message();
      Violate(source.index, "resolution", std::string(why.data(), why.size()));
    }
  } else if (table.width % step != 0 || table.height % step != 0) {
    Violate(source.index, "resolution",
            absl::StrCat("sides must be multiples of ", step, " without enable_bucket, is ",
                         SizeText(table.width, table.height)));
  }
}

std::optional<CacheMismatch> DatasetBuilder::CheckSizes(const Source& source,
                                                        const LatentName& name,
                                                        const LatentHeader& header,
                                                        ItemPlacement* placement) {
  const DatasetTable& table = source.table;
  const auto bucket =
      NearestBucket(name.width, name.height, table.width, table.height,
                    model_.vae_scale * model_.patch, table.enable_bucket, table.bucket_no_upscale);
  const std::string file = fs::path(name.path).filename().string();
  if (!bucket.ok()) {
    const absl::string_view why = bucket.status().message();
    return CacheMismatch{ItemFault::kSizesDisagree, absl::StrCat(file, ": ", why)};
  }
  placement->width = bucket->first;
  placement->height = bucket->second;
  const int64_t width = header.width * model_.vae_scale, height = header.height * model_.vae_scale;
  if (name.width == header.media_width && name.height == header.media_height &&
      width == bucket->first && height == bucket->second) {
    return std::nullopt;
  }
  return CacheMismatch{
      ItemFault::kSizesDisagree,
      absl::StrCat(file, ": width x height is ", SizeText(name.width, name.height),
                   " by the name, ", SizeText(header.media_width, header.media_height),
                   " by the metadata, ", SizeText(width, height), " by the tensor (", header.height,
                   " rows of ", header.width, " cells), and the bucket of such media is ",
                   SizeText(bucket->first, bucket->second))};
}

std::optional<DatasetItem> DatasetBuilder::ReadItem(const Source& source,
                                                    const DeclaredItem& declared,
                                                    const LatentName& name,
                                                    const std::string& text_path,
                                                    ItemFaults* faults) {
  LatentHeader latent;
  TextHeader text;
  ItemPlacement placement;
  auto mismatch = ReadLatentHeader(name.path, family_, model_, &latent);
  if (!mismatch && !latent.control_shapes.empty()) {
    mismatch = CacheMismatch{ItemFault::kControls, declared.name};
  }
  if (!mismatch) mismatch = CheckSizes(source, name, latent, &placement);
  if (!mismatch) mismatch = ReadTextHeader(text_path, family_, model_, &text);
  if (!mismatch && declared.caption.has_value() && *declared.caption != text.caption) {
    mismatch = CacheMismatch{ItemFault::kStaleCaption, declared.name};
  }
  if (mismatch) {
    faults->Add(mismatch->fault, mismatch->text);
    return std::nullopt;
  }
  DatasetItem item;
  item.name = declared.name;
  item.latent_path = name.path;
  item.text_path = text_path;
  item.latent_key = latent.key;
  item.text_key = text.key;
  item.channels = latent.channels;
  item.frames = latent.frames;
  item.height = latent.height;
  item.width = latent.width;
  item.text_tokens = text.tokens;
  item.control_shapes = latent.control_shapes;
  placement.dataset = source.index;
  placement.repeats = source.table.num_repeats;
  placement.batch_size = source.table.batch_size;
  placements_.push_back(placement);
  return item;
}

void DatasetBuilder::AddItem(const Source& source, const DeclaredItem& declared,
                             ItemFaults* faults) {
  if (declared.caption_missing) {
    faults->Add(ItemFault::kNoCaption, declared.source);
    return;
  }
  const auto latents = source.caches.latents.find(declared.name);
  if (latents == source.caches.latents.end()) {
    faults->Add(ItemFault::kNoLatentCache, declared.name);
    return;
  }
  if (latents->second.size() > 1) {
    std::vector<std::string> sizes;
    for (const LatentName& name : latents->second)
      sizes.push_back(SizeText(name.width, name.height));
    faults->Add(ItemFault::kTwoSizes,
                absl::StrCat(declared.name, " (", absl::StrJoin(sizes, ", "), ")"));
    return;
  }
  const auto text = source.caches.texts.find(declared.name);
  if (text == source.caches.texts.end()) {
    faults->Add(ItemFault::kNoTextCache, declared.name);
    return;
  }
  auto item = ReadItem(source, declared, latents->second.front(), text->second, faults);
  if (item.has_value()) dataset_->items_.push_back(*std::move(item));
}

void DatasetBuilder::AddItems(const Source& source) {
  std::vector<DeclaredItem> declared;
  if (source.declared.has_value()) {
    declared = *source.declared;
  } else {
    for (const auto& [name, files] : source.caches.latents) {
      declared.push_back({name, name, std::nullopt, /*caption_missing=*/false});
    }
  }
  const size_t before = dataset_->items_.size();
  ItemFaults faults;
  for (const DeclaredItem& item : declared) AddItem(source, item, &faults);
  const auto used = static_cast<int64_t>(dataset_->items_.size() - before);
  dataset_->counts_.declared += static_cast<int64_t>(declared.size());
  dataset_->counts_.found += source.caches.num_latents();
  dataset_->counts_.used += used;
  dataset_->counts_.skipped += static_cast<int64_t>(declared.size()) - used;
  std::vector<std::string> errors;
  faults.Report(policy_, &errors, &dataset_->warnings_);
  for (const std::string& error : errors) Violate(source.index, "", error);
  ReportUnused(source);
  if (used == 0) ReportEmpty(source, static_cast<int64_t>(declared.size()));
}

// Caches that lie in the folder but belong to no declared item are never trained on, and never
// silently so.
void DatasetBuilder::ReportUnused(const Source& source) {
  std::set<std::string> names;
  if (source.declared.has_value()) {
    for (const DeclaredItem& item : *source.declared) names.insert(item.name);
  } else {
    for (const auto& [name, files] : source.caches.latents) names.insert(name);
  }
  std::vector<std::string> orphans;
  for (const auto& [name, files] : source.caches.latents) {
    if (names.count(name) == 0) orphans.push_back(name);
  }
  for (const auto& [name, path] : source.caches.texts) {
    if (names.count(name) == 0 && source.caches.latents.count(name) == 0) orphans.push_back(name);
  }
  if (!orphans.empty()) {
    dataset_->warnings_.push_back(
        absl::StrCat("datasets[", source.index, "]: caches of ", orphans.size(),
                     " items that the data set does not declare are not used: ", FirstOf(orphans)));
  }
  if (!source.caches.malformed.empty()) {
    dataset_->warnings_.push_back(
        absl::StrCat("datasets[", source.index, "]: ", source.caches.malformed.size(),
                     " cache names have no WIDTHxHEIGHT part and are not used: ",
                     FirstOf(source.caches.malformed)));
  }
}

void DatasetBuilder::ReportEmpty(const Source& source, int64_t declared) {
  const absl::string_view short_name = family_.musubi_short_name();
  std::string first;
  if (source.declared.has_value() && !source.declared->empty()) {
    first = source.declared->front().name;
  } else if (!source.caches.latents.empty()) {
    first = source.caches.latents.begin()->first;
  }
  Violate(
      source.index, "",
      absl::StrCat("no usable item: ", declared, " declared, ", source.caches.num_latents(),
                   " latent caches *_WIDTHxHEIGHT_", short_name, ".safetensors and ",
                   source.caches.texts.size(), " text caches *_", short_name, "_te.safetensors in ",
                   source.caches.path,
                   first.empty() ? "" : absl::StrCat("; the first missing item is ", Quoted(first)),
                   source.caches.of_other_families > 0
                       ? absl::StrCat("; ", source.caches.of_other_families,
                                      " files there belong to other architectures")
                       : ""));
}

// As musubi writes it into ss_datasets: base names of folders only, since adapters are passed
// around.
std::string DatasetBuilder::Describe(const std::vector<Source>& sources) const {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Source& source : sources) {
    const DatasetTable& table = source.table;
    nlohmann::ordered_json json = {
        {"is_image_dataset", true},
        {"resolution", {table.width, table.height}},
        {"caption_extension", table.caption_extension},
        {"batch_size_per_device", table.batch_size},
        {"num_repeats", table.num_repeats},
        {"enable_bucket", table.enable_bucket},
        {"bucket_no_upscale", table.bucket_no_upscale},
        {"cache_directory", fs::path(source.caches.path).filename().string()}};
    if (!table.image_directory.empty()) {
      json["image_directory"] = fs::path(table.image_directory).filename().string();
    }
    if (!table.image_jsonl_file.empty()) {
      json["image_jsonl_file"] = fs::path(table.image_jsonl_file).filename().string();
    }
    list.push_back(std::move(json));
  }
  return list.dump(-1, ' ', /*ensure_ascii=*/false,
                   nlohmann::ordered_json::error_handler_t::replace);
}

absl::StatusOr<std::shared_ptr<Dataset>> DatasetBuilder::Build() {
  const size_t before = violations_->size();
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(toml_path_, kMaxTomlBytes));
  const absl::string_view family = family_.name();
  const std::vector<DatasetTable> tables =
      ParseDatasetFile(text, std::string(family.data(), family.size()), violations_);
  if (violations_->size() > before) return ViolationsToStatus(*violations_);
  std::vector<Source> sources;
  for (size_t i = 0; i < tables.size(); ++i) {
    auto source = OpenSource(static_cast<int>(i), tables[i]);
    if (!source.has_value()) continue;
    CheckResolution(*source);
    sources.push_back(*std::move(source));
  }
  RefuseSharedFolders(sources);
  if (violations_->size() > before) return ViolationsToStatus(*violations_);
  for (const Source& source : sources) AddItems(source);
  if (violations_->size() > before) return ViolationsToStatus(*violations_);
  dataset_->buckets_ = AssignBuckets(placements_, &dataset_->items_);
  dataset_->datasets_json_ = Describe(sources);
  return dataset_;
}

absl::StatusOr<std::shared_ptr<Dataset>> Dataset::Open(
    const std::string& toml_path, const Family& family, const ModelDescription& model,
    MissingPolicy on_missing, std::vector<FieldViolation>* violations, const std::string& root) {
  return DatasetBuilder(toml_path, root, family, model, on_missing, violations).Build();
}

}  // namespace blockswap::worker
