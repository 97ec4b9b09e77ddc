// SPDX-License-Identifier: Apache-2.0
#include "proto/job_file/message_filler.h"

#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "offload/base/nearest_name.h"
#include "proto/text/utf8.h"

namespace blockswap::proto {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// A file of nothing but faults need not be listed to the end.
constexpr size_t kMaxFaults = 200;
constexpr size_t kShownTextBytes = 60;

std::vector<std::string> FieldNames(const Descriptor* descriptor) {
  std::vector<std::string> names;
  for (int i = 0; i < descriptor->field_count(); ++i) names.push_back(descriptor->field(i)->name());
  return names;
}

std::string Join(const std::string& path, const std::string& key) {
  return path.empty() ? key : absl::StrCat(path, ".", key);
}

std::string Shown(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "nothing";
    case YamlNode::Kind::kList:
      return "a list";
    case YamlNode::Kind::kMap:
      return "a table";
    case YamlNode::Kind::kScalar:
      break;
  }
  return absl::StrCat("\"", Shorten(node.text, kShownTextBytes), "\"");
}

// Paths of every field called `key` below `descriptor`.
void FindField(const Descriptor* descriptor, const std::string& key, const std::string& path,
               std::vector<std::string>* found) {
  if (descriptor->FindFieldByName(key) != nullptr) found->push_back(Join(path, key));
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    if (field->message_type() == nullptr || field->is_repeated()) continue;
    FindField(field->message_type(), key, Join(path, field->name()), found);
  }
}

// Decimal and finite; hexadecimal, "inf" and "nan", which the conversion takes too, are no numbers
// of a job file.
std::optional<double> ParseReal(const std::string& text) {
  double value = 0;
  if (text.empty() || text.find_first_not_of("0123456789+-.eE") != std::string::npos ||
      !absl::SimpleAtod(text, &value) || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

std::optional<int64_t> ParseInteger(const std::string& text) {
  int64_t value = 0;
  if (absl::SimpleAtoi(text, &value)) return value;
  // 1e3 and 200.0 are whole numbers too, as in the JSON mapping; beyond 2^53 a double has lost
  // digits.
  const std::optional<double> real = ParseReal(text);
  if (real.has_value() && std::fabs(*real) <= 9007199254740992.0 && std::trunc(*real) == *real) {
    return static_cast<int64_t>(*real);
  }
  return std::nullopt;
}

// Empty when `node` holds a value of the field's type, else what is wrong with it.
std::string ScalarFault(const YamlNode& node, const FieldDescriptor* field) {
  if (node.kind != YamlNode::Kind::kScalar) {
    return absl::StrCat(
        "expected ",
        field->cpp_type() == FieldDescriptor::CPPTYPE_STRING ? "text" : "a number or word",
        ", found ", Shown(node));
  }
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return "";
    case FieldDescriptor::CPPTYPE_BOOL:
      return node.text == "true" || node.text == "True" || node.text == "TRUE" ||
                     node.text == "false" || node.text == "False" || node.text == "FALSE"
                 ? ""
                 : absl::StrCat("expected true or false, found ", Shown(node));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return ParseReal(node.text).has_value()
                 ? ""
                 : absl::StrCat("expected a finite number, found ", Shown(node));
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_INT64: {
      const std::optional<int64_t> value = ParseInteger(node.text);
      if (!value.has_value()) {
        return ParseReal(node.text).has_value() &&
                       node.text.find_first_of(".eE") == std::string::npos
                   ? absl::StrCat("number out of range: ", Shown(node))
                   : absl::StrCat("expected a whole number, found ", Shown(node));
      }
      const bool fits = field->cpp_type() == FieldDescriptor::CPPTYPE_INT64 ||
                        (*value >= std::numeric_limits<int32_t>::min() &&
                         *value <= std::numeric_limits<int32_t>::max());
      return fits ? ""
                  : absl::StrCat("number out of range: ", Shown(node),
                                 ", the largest is 2147483647");
    }
    default:
      return absl::StrCat("fields of type ", field->cpp_type_name(), " cannot be set from a file");
  }
}

// REQUIRES: ScalarFault(node, field) is empty.
void SetScalar(const YamlNode& node, const FieldDescriptor* field, Message* message) {
  const Reflection* reflection = message->GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      reflection->SetString(message, field, node.text);
      break;
    case FieldDescriptor::CPPTYPE_BOOL:
      reflection->SetBool(message, field, node.text[0] == 't' || node.text[0] == 'T');
      break;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      reflection->SetDouble(message, field, *ParseReal(node.text));
      break;
    case FieldDescriptor::CPPTYPE_INT32:
      reflection->SetInt32(message, field, static_cast<int32_t>(*ParseInteger(node.text)));
      break;
    case FieldDescriptor::CPPTYPE_INT64:
      reflection->SetInt64(message, field, *ParseInteger(node.text));
      break;
    default:
      break;
  }
}

}  // namespace

void MessageFiller::AddFault(const std::string& path, const std::string& description, int line) {
  if (faults_->size() >= kMaxFaults) return;
  faults_->push_back(
      {path, line > 0 ? absl::StrCat(description, " (line ", line, ")") : description});
}

std::string MessageFiller::DescribeUnknownKey(const std::string& key,
                                              const Descriptor* descriptor) const {
  std::vector<std::string> elsewhere;
  FindField(root_, key, "", &elsewhere);
  if (!elsewhere.empty()) {
    return absl::StrCat("unknown key here, \"", key, "\" belongs to ",
                        absl::StrJoin(elsewhere, " or "));
  }
  const std::string nearest = base::NearestName(key, FieldNames(descriptor));
  if (!nearest.empty()) return absl::StrCat("unknown key, did you mean \"", nearest, "\"?");
  return absl::StrCat("unknown key; known here: ", absl::StrJoin(FieldNames(descriptor), ", "));
}

void MessageFiller::FillMessage(const YamlNode& node, const std::string& path, Message* message) {
  if (node.kind == YamlNode::Kind::kNull) return;
  const Descriptor* descriptor = message->GetDescriptor();
  if (node.kind != YamlNode::Kind::kMap) {
    AddFault(path,
             absl::StrCat("expected a table with ", absl::StrJoin(FieldNames(descriptor), ", "),
                          ", found ", Shown(node)),
             node.line);
    return;
  }
  std::set<std::string> seen;
  for (const YamlEntry& entry : node.entries) {
    const std::string entry_path = Join(path, entry.key);
    if (!seen.insert(entry.key).second) {
      AddFault(entry_path, "key given twice", entry.line);
      continue;
    }
    const FieldDescriptor* field = descriptor->FindFieldByName(entry.key);
    if (field == nullptr) {
      AddFault(entry_path, DescribeUnknownKey(entry.key, descriptor), entry.line);
      continue;
    }
    FillField(entry.value, entry_path, field, message);
  }
}

void MessageFiller::FillField(const YamlNode& node, const std::string& path,
                              const FieldDescriptor* field, Message* message) {
  if (node.kind == YamlNode::Kind::kNull) return;
  if (field->is_map()) {
    FillMap(node, path, field, message);
  } else if (field->is_repeated()) {
    FillList(node, path, field, message);
  } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    FillMessage(node, path, message->GetReflection()->MutableMessage(message, field));
  } else {
    FillScalar(node, path, field, message);
  }
}

void MessageFiller::FillScalar(const YamlNode& node, const std::string& path,
                               const FieldDescriptor* field, Message* message) {
  const std::string fault = ScalarFault(node, field);
  if (fault.empty()) {
    SetScalar(node, field, message);
  } else {
    AddFault(path, fault, node.line);
  }
}

void MessageFiller::FillList(const YamlNode& node, const std::string& path,
                             const FieldDescriptor* field, Message* message) {
  if (node.kind != YamlNode::Kind::kList) {
    AddFault(path, absl::StrCat("expected a list, such as [a, b], found ", Shown(node)), node.line);
    return;
  }
  const Reflection* reflection = message->GetReflection();
  reflection->ClearField(message, field);
  for (size_t i = 0; i < node.items.size(); ++i) {
    const YamlNode& item = node.items[i];
    const std::string item_path = absl::StrCat(path, "[", i, "]");
    if (item.kind != YamlNode::Kind::kScalar ||
        field->cpp_type() != FieldDescriptor::CPPTYPE_STRING) {
      AddFault(item_path, absl::StrCat("expected text, found ", Shown(item)), item.line);
      continue;
    }
    reflection->AddString(message, field, item.text);
  }
}

void MessageFiller::FillMap(const YamlNode& node, const std::string& path,
                            const FieldDescriptor* field, Message* message) {
  if (node.kind != YamlNode::Kind::kMap) {
    AddFault(path, absl::StrCat("expected a table of text, found ", Shown(node)), node.line);
    return;
  }
  const FieldDescriptor* key_field = field->message_type()->map_key();
  const FieldDescriptor* value_field = field->message_type()->map_value();
  const Reflection* reflection = message->GetReflection();
  std::set<std::string> seen;
  for (const YamlEntry& entry : node.entries) {
    const std::string entry_path = Join(path, entry.key);
    if (!seen.insert(entry.key).second) {
      AddFault(entry_path, "key given twice", entry.line);
      continue;
    }
    const std::string fault = ScalarFault(entry.value, value_field);
    if (!fault.empty()) {
      AddFault(entry_path, fault, entry.line);
      continue;
    }
    // A later entry of the same key wins when the wire form of a map is read into a map.
    Message* pair = reflection->AddMessage(message, field);
    pair->GetReflection()->SetString(pair, key_field, entry.key);
    SetScalar(entry.value, value_field, pair);
  }
}

}  // namespace blockswap::proto
