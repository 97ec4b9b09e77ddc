// SPDX-License-Identifier: Apache-2.0
// The job templates of a directory that the operator fills: one file for each, read when asked for.
#ifndef BLOCKSWAP_SERVER_RPC_TEMPLATE_CATALOG_H_
#define BLOCKSWAP_SERVER_RPC_TEMPLATE_CATALOG_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "blockswap/v1/training.pb.h"

namespace blockswap::server {

// `<directory>/<template>.yaml` (.yml, .json): description, allowed_overrides, and spec as in a job
// file. Thread safety: safe; reads files.
class TemplateCatalog final {
 public:
  explicit TemplateCatalog(std::string directory) : directory_(std::move(directory)) {}

  // By name. A file that is no template is left out and logged: it must not hide the others.
  std::vector<v1::JobTemplate> List() const;
  // `name` with or without "templates/". NotFound TEMPLATE_NOT_FOUND; FailedPrecondition
  // TEMPLATE_INVALID naming every fault of the file.
  absl::StatusOr<v1::JobTemplate> Get(const std::string& name) const;

 private:
  const std::string directory_;
};

// The template's spec with what `given` sets. PermissionDenied OVERRIDE_NOT_ALLOWED naming every
// field that the template does not let be changed.
absl::StatusOr<v1::JobSpec> ApplyTemplate(const v1::JobTemplate& job_template,
                                          const v1::JobSpec& given);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_TEMPLATE_CATALOG_H_
