// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/spec_limits.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "offload/base/status_macros.h"
#include "server/base/secret_finder.h"
#include "server/base/wall_clock.h"

namespace blockswap::server {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr absl::Duration kLongestDeadline = absl::Hours(24 * 3653);

using TextCheck = void (*)(const std::string& text, const std::string& path,
                           std::vector<Violation>* violations);

void CheckLength(const std::string& text, const std::string& path,
                 std::vector<Violation>* violations) {
  const auto bytes = static_cast<int64_t>(text.size());
  if (bytes <= kMaxStringBytes) return;
  violations->push_back(
      {path, absl::StrCat("has ", bytes, " bytes, at most ", kMaxStringBytes, " are allowed")});
}

// To hide it in answers would not do: the spec also goes to the worker and to retries.
void CheckSecret(const std::string& text, const std::string& path,
                 std::vector<Violation>* violations) {
  if (!HoldsSecret(text)) return;
  violations->push_back({path,
                         "holds what looks like a token or a password; a job file is kept and "
                         "shown to all who may read the job, and nothing in it takes a secret"});
}

void CheckTexts(const Message& message, const std::string& prefix, TextCheck check,
                std::vector<Violation>* violations) {
  const Reflection& values = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  values.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const std::string path = absl::StrCat(prefix, field->name());
    const bool is_text = field->cpp_type() == FieldDescriptor::CPPTYPE_STRING;
    const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (!field->is_repeated()) {
      if (is_text) check(values.GetString(message, field), path, violations);
      if (is_message) {
        CheckTexts(values.GetMessage(message, field), absl::StrCat(path, "."), check, violations);
      }
      continue;
    }
    for (int i = 0; i < values.FieldSize(message, field); ++i) {
      if (is_text) check(values.GetRepeatedString(message, field, i), path, violations);
      // Entries of maps are messages of key and value.
      if (is_message) {
        CheckTexts(values.GetRepeatedMessage(message, field, i), absl::StrCat(path, "."), check,
                   violations);
      }
    }
  }
}

}  // namespace

absl::StatusOr<int64_t> DeadlineMicros(const std::string& deadline, int64_t create_micros) {
  if (deadline.empty()) return 0;
  const absl::Time created = absl::FromUnixMicros(create_micros);
  absl::Duration span;
  absl::Time time;
  if (absl::ParseDuration(deadline, &span)) {
    time = created + span;
  } else if (!absl::ParseTime(absl::RFC3339_full, deadline, &time, nullptr)) {
    return absl::InvalidArgumentError(
        "must be a time with its zone (2026-12-01T08:00:00Z) or a span (36h, 90m)");
  }
  if (time <= created) {
    return absl::InvalidArgumentError("must be later than the job's creation");
  }
  if (time - created > kLongestDeadline) {
    return absl::InvalidArgumentError("must be within ten years");
  }
  return absl::ToUnixMicros(time);
}

std::vector<Violation> CheckSpecLimits(const v1::JobSpec& spec, int64_t max_spec_bytes,
                                       int64_t create_micros) {
  std::vector<Violation> violations;
  const auto bytes = static_cast<int64_t>(spec.ByteSizeLong());
  if (bytes > max_spec_bytes) {
    violations.push_back({"spec", absl::StrCat("has ", bytes, " bytes, at most ", max_spec_bytes,
                                               " are allowed; refer to files by path")});
  }
  CheckTexts(spec, "", CheckLength, &violations);
  if (spec.labels_size() > kMaxLabels) {
    violations.push_back({"labels", absl::StrCat("has ", spec.labels_size(), " entries, at most ",
                                                 kMaxLabels, " are allowed")});
  }
  const absl::StatusOr<int64_t> deadline = DeadlineMicros(spec.deadline(), create_micros);
  if (!deadline.ok()) {
    violations.push_back({"deadline", std::string(deadline.status().message())});
  } else if (*deadline != 0 && *deadline <= WallMicros()) {
    violations.push_back({"deadline", "has passed already"});
  }
  return violations;
}

std::vector<Violation> CheckSpecSecrets(const v1::JobSpec& spec) {
  std::vector<Violation> violations;
  CheckTexts(spec, "", CheckSecret, &violations);
  return violations;
}

void TakeQueueSettings(const v1::JobSpec& spec, JobRecord& job) {
  job.labels.clear();
  job.labels.insert(spec.labels().begin(), spec.labels().end());
  job.priority = spec.priority();
  job.max_restarts =
      spec.retry().has_max_restarts() ? spec.retry().max_restarts() : JobRecord().max_restarts;
  job.held = spec.hold();
  job.deadline_micros = DeadlineMicros(spec.deadline(), job.create_micros).value_or(0);
}

}  // namespace blockswap::server
