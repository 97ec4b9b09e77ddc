// SPDX-License-Identifier: Apache-2.0
#include "server/auth/permissions.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "server/base/reason.h"

namespace blockswap::server {

const std::vector<Permission>& Permissions() {
  static const auto* table = new std::vector<Permission>{
      {"TrainingService/CreateJob", Role::kSubmitter},
      {"TrainingService/PlanJob", Role::kSubmitter},
      {"TrainingService/GetJob", Role::kViewer, /*names_job=*/true},
      {"TrainingService/ListJobs", Role::kViewer},
      {"TrainingService/UpdateJob", Role::kSubmitter, /*names_job=*/true},
      {"TrainingService/CancelJob", Role::kSubmitter, /*names_job=*/true},
      {"TrainingService/SuspendJob", Role::kSubmitter, /*names_job=*/true},
      {"TrainingService/ResumeJob", Role::kSubmitter, /*names_job=*/true},
      {"TrainingService/RetryJob", Role::kSubmitter, /*names_job=*/true},
      {"TrainingService/CheckpointJob", Role::kSubmitter, /*names_job=*/true},
      {"TrainingService/SampleJob", Role::kSubmitter, /*names_job=*/true},
      {"TrainingService/DeleteJob", Role::kSubmitter, /*names_job=*/true},
      {"TrainingService/WatchJobs", Role::kViewer, /*names_job=*/true},
      {"TrainingService/StreamJobLogs", Role::kViewer, /*names_job=*/true},
      {"TrainingService/ListJobEvents", Role::kViewer, /*names_job=*/true},
      {"TrainingService/ListAttempts", Role::kViewer, /*names_job=*/true},
      {"TrainingService/ListCheckpoints", Role::kViewer, /*names_job=*/true},
      {"TrainingService/GetCheckpoint", Role::kViewer, /*names_job=*/true},
      {"TrainingService/DeleteCheckpoint", Role::kSubmitter, /*names_job=*/true},
      {"TrainingService/ListMetricPoints", Role::kViewer, /*names_job=*/true},
      {"TrainingService/ListTemplates", Role::kViewer},
      {"TrainingService/GetTemplate", Role::kViewer},
      {"AdminService/ListDevices", Role::kViewer},
      {"AdminService/GetDevice", Role::kViewer},
      {"AdminService/GetServerInfo", Role::kViewer},
      {"AdminService/GetQueue", Role::kViewer},
      {"AdminService/GetConfig", Role::kOperator},
      {"AdminService/PauseQueue", Role::kOperator},
      {"AdminService/ResumeQueue", Role::kOperator},
      {"AdminService/DrainDevice", Role::kAdmin},
      {"AdminService/UndrainDevice", Role::kAdmin},
      {"AdminService/SetLogLevel", Role::kAdmin},
      {"AdminService/ReloadConfig", Role::kAdmin},
      {"AdminService/BackUpStore", Role::kAdmin},
      {"AdminService/CheckStore", Role::kAdmin},
      {"AdminService/CreateToken", Role::kAdmin},
      {"AdminService/ListTokens", Role::kAdmin},
      {"AdminService/RevokeToken", Role::kAdmin},
  };
  return *table;
}

const Permission* FindPermission(absl::string_view method) {
  for (const Permission& permission : Permissions()) {
    if (method == permission.method) return &permission;
  }
  return nullptr;
}

absl::Status CheckPermission(absl::string_view method, const Identity& identity) {
  const Permission* permission = FindPermission(method);
  if (permission != nullptr && identity.role >= permission->least) return absl::OkStatus();
  const char* needed = permission == nullptr ? "no role" : RoleName(permission->least);
  return WithReason(
      absl::PermissionDeniedError(absl::StrCat(method, " needs the role ", needed, ", ",
                                               identity.name, " is ", RoleName(identity.role),
                                               "; ask an admin for a token of that role")),
      "ACCESS_DENIED",
      {{"method", std::string(method)}, {"role", RoleName(identity.role)}, {"needed", needed}});
}

}  // namespace blockswap::server
