// SPDX-License-Identifier: Apache-2.0
#include "client/cli/job_text.h"

#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/people_text.h"
#include "google/protobuf/descriptor.h"
#include "offload/base/byte_size.h"
#include "proto/text/progress_text.h"
#include "proto/text/utf8.h"

namespace blockswap::cli {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

void AppendRow(const std::string& label, const std::string& value, std::string* text) {
  if (value.empty()) return;
  absl::StrAppendFormat(text, "%-14s%s\n", absl::StrCat(label, ":"), proto::ToPrintable(value));
}

// Indented by two, every line.
std::string Indented(const std::string& text) {
  std::string indented;
  bool at_line_start = true;
  for (const char c : text) {
    if (at_line_start && c != '\n') indented += "  ";
    indented += c;
    at_line_start = c == '\n';
  }
  if (!at_line_start) indented += '\n';
  return indented;
}

std::string Quoted(const std::string& text) {
  return absl::StrCat("\"", absl::Utf8SafeCEscape(text), "\"");
}

std::string ScalarText(const Message& message, const FieldDescriptor* field) {
  const Reflection* reflection = message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return Quoted(reflection->GetString(message, field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection->GetBool(message, field) ? "true" : "false";
    case FieldDescriptor::CPPTYPE_INT32:
      return absl::StrCat(reflection->GetInt32(message, field));
    case FieldDescriptor::CPPTYPE_INT64:
      return absl::StrCat(reflection->GetInt64(message, field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return absl::StrFormat("%.15g", reflection->GetDouble(message, field));
    default:
      return "?";  // the schema has no other scalars
  }
}

void AppendFields(const Message& message, int depth, std::string* text) {
  const Reflection* reflection = message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  const std::string indent(static_cast<size_t>(2 * depth), ' ');
  for (const FieldDescriptor* field : fields) {
    absl::StrAppend(text, indent, field->name(), ":");
    if (field->is_repeated()) {
      std::vector<std::string> items;
      for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
        if (field->is_map()) {
          const Message& pair = reflection->GetRepeatedMessage(message, field, i);
          items.push_back(absl::StrCat(ScalarText(pair, field->message_type()->map_key()), ": ",
                                       ScalarText(pair, field->message_type()->map_value())));
        } else {
          items.push_back(Quoted(reflection->GetRepeatedString(message, field, i)));
        }
      }
      absl::StrAppend(text, field->is_map() ? " {" : " [", absl::StrJoin(items, ", "),
                      field->is_map() ? "}\n" : "]\n");
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      absl::StrAppend(text, "\n");
      AppendFields(reflection->GetMessage(message, field), depth + 1, text);
    } else {
      absl::StrAppend(text, " ", ScalarText(message, field), "\n");
    }
  }
}

void AppendProgress(const v1::Job& job, std::string* text) {
  if (job.has_progress() && job.progress().total_steps() > 0) {
    AppendRow("Progress", proto::ProgressLine(ToFigures(job.progress())), text);
  }
  if (job.has_failure()) AppendRow("Failure", FailureText(job.failure()), text);
  for (const std::string& warning : job.warnings()) AppendRow("Warning", warning, text);
}

}  // namespace

std::string SpecText(const v1::JobSpec& spec) {
  std::string text;
  AppendFields(spec, 0, &text);
  return text;
}

std::string AdapterFile(const v1::Job& job) {
  const std::string& name =
      job.spec().output().name().empty() ? job.spec().name() : job.spec().output().name();
  return absl::StrCat(job.output_directory(), "/", name, ".safetensors");
}

std::string PlanText(const v1::MemoryPlan& plan) {
  std::string text;
  if (!plan.text().empty()) {
    text = proto::ToPrintable(plan.text());
    if (text.back() != '\n') text += '\n';
    return text;
  }
  AppendRow("Blocks",
            absl::StrFormat("%d of %d streamed through %d slots, %s", plan.blocks_to_swap(),
                            plan.num_blocks(), plan.ring_size(), plan.mode()),
            &text);
  AppendRow("Device",
            absl::StrCat(base::FormatByteSize(plan.device_bytes()), " of ",
                         base::FormatByteSize(plan.vram_budget_bytes())),
            &text);
  AppendRow("Host",
            absl::StrCat(base::FormatByteSize(plan.pinned_bytes()), " locked, ",
                         base::FormatByteSize(plan.pageable_bytes()), " pageable"),
            &text);
  AppendRow("Link",
            absl::StrCat(base::FormatByteSize(plan.h2d_bytes_per_step()), " to the device and ",
                         base::FormatByteSize(plan.d2h_bytes_per_step()), " back for each step"),
            &text);
  for (const std::string& note : plan.notes()) AppendRow("Note", note, &text);
  return text;
}

std::string DescribeJob(const v1::Job& job, absl::Time now) {
  std::string text;
  AppendRow("Job", JobId(job.name()), &text);
  AppendRow("Name", job.spec().name(), &text);
  std::string state = StateName(job.state());
  const std::string reason = StateReason(job);
  if (!reason.empty()) absl::StrAppend(&state, ", ", reason);
  AppendRow("State", state, &text);
  if (job.state() == v1::JOB_STATE_QUEUED)
    AppendRow("Position", absl::StrCat(job.queue_position()), &text);
  AppendProgress(job, &text);
  AppendRow("Device", job.device(), &text);
  if (job.attempt() > 0) AppendRow("Attempt", absl::StrCat(job.attempt()), &text);
  for (const auto& [label, time] :
       std::initializer_list<std::pair<const char*, const google::protobuf::Timestamp*>>{
           {"Created", &job.create_time()},
           {"Started", &job.start_time()},
           {"Ended", &job.end_time()}}) {
    if (time->seconds() > 0)
      AppendRow(label, absl::StrCat(LocalTime(*time), " (", Ago(*time, now), ")"), &text);
  }
  AppendRow("Outputs", job.output_directory(), &text);
  if (job.has_plan()) absl::StrAppend(&text, "Plan:\n", Indented(PlanText(job.plan())));
  absl::StrAppend(&text, "Spec:\n", Indented(SpecText(job.spec())));
  return text;
}

}  // namespace blockswap::cli
