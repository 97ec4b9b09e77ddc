// SPDX-License-Identifier: Apache-2.0
// Builds a Dataset from its TOML: sources, caches, and every check between them.
#ifndef BLOCKSWAP_WORKER_DATA_DATASET_BUILDER_H_
#define BLOCKSWAP_WORKER_DATA_DATASET_BUILDER_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/data/bucket_assignment.h"
#include "worker/data/cache_directory.h"
#include "worker/data/cache_headers.h"
#include "worker/data/dataset.h"
#include "worker/data/dataset_file.h"
#include "worker/data/item_faults.h"
#include "worker/data/media_sources.h"

namespace blockswap::worker {

// Used once. Thread safety: one thread.
class DatasetBuilder {
 public:
  DatasetBuilder(const std::string& toml_path, const std::string& root, const Family& family,
                 const ModelDescription& model, MissingPolicy policy,
                 std::vector<FieldViolation>* violations);
  absl::StatusOr<std::shared_ptr<Dataset>> Build();

 private:
  // A table with its folders resolved and listed.
  struct Source {
    int index = 0;
    DatasetTable table;
    CacheDirectory caches;
    std::optional<std::vector<DeclaredItem>> declared;  // absent: every cache of the folder
  };

  std::optional<Source> OpenSource(int index, const DatasetTable& table);
  std::optional<std::string> Resolve(int index, const char* key, const std::string& path);
  void RefuseSharedFolders(const std::vector<Source>& sources);
  void CheckResolution(const Source& source);
  void AddItems(const Source& source);
  void AddItem(const Source& source, const DeclaredItem& declared, ItemFaults* faults);
  // The latent cache and its text cache found good, or the reason added to `faults`.
  std::optional<DatasetItem> ReadItem(const Source& source, const DeclaredItem& declared,
                                      const LatentName& name, const std::string& text_path,
                                      ItemFaults* faults);
  std::optional<CacheMismatch> CheckSizes(const Source& source, const LatentName& name,
                                          const LatentHeader& header, ItemPlacement* placement);
  void ReportUnused(const Source& source);
  void ReportEmpty(const Source& source, int64_t used);
  void Violate(int index, const std::string& key, const std::string& what);
  std::string Describe(const std::vector<Source>& sources) const;

  const std::string toml_path_, root_;
  const Family& family_;
  const ModelDescription& model_;
  const MissingPolicy policy_;
  std::vector<FieldViolation>* const violations_;
  std::shared_ptr<Dataset> dataset_;
  std::vector<ItemPlacement> placements_;
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_DATA_DATASET_BUILDER_H_
