// SPDX-License-Identifier: Apache-2.0
#include "worker/data/dataset_file.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "offload/base/nearest_name.h"
#include "worker/data/dataset_schema.h"
#include "worker/data/toml_parser.h"
#include "worker/io/json_text.h"

namespace blockswap::worker {
namespace {

constexpr int64_t kLargestCount = 1'000'000;
constexpr int64_t kShortestSide = 16, kLongestSide = 65536;

std::string At(const toml::source_region& where) {
  return absl::StrCat("line ", where.begin.line, ", column ", where.begin.column, ": ");
}

std::string TypeName(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "a list";
    case toml::node_type::string:
      return "text";
    case toml::node_type::integer:
      return absl::StrCat("the number ", node.as_integer()->get());
    case toml::node_type::floating_point:
      return absl::StrCat("the number ", node.as_floating_point()->get());
    case toml::node_type::boolean:
      return node.as_boolean()->get() ? "true" : "false";
    default:
      return "a date or time";
  }
}

// Checks one table after the other and writes what is right into a DatasetTable.
class SchemaReader {
 public:
  SchemaReader(const std::string& family, std::vector<FieldViolation>* violations)
      : family_(family), violations_(violations) {}

  void CheckTopLevel(const toml::table& root) {
    for (const auto& [key, node] : root) {
      const std::string name(key.str());
      if (name == "general" || name == "datasets") continue;
      const KeyRule* rule = FindKey(name);
      if (rule != nullptr) {
        Report(name, key.source(),
               absl::StrCat("key ", Quoted(name), " belongs in ",
                            rule->place == KeyPlace::kAnywhere ? "[general] or [[datasets]]"
                                                               : "[[datasets]]"));
        continue;
      }
      const std::string nearest = base::NearestName(name, {"general", "datasets"});
      Report(
          name, key.source(),
          absl::StrCat("unknown ", node.is_table() || node.is_array_of_tables() ? "table " : "key ",
                       Quoted(name), Suggestion(nearest), ": expected [general] and [[datasets]]"));
    }
  }

  void ReadTable(const toml::table& table, const std::string& path, bool general,
                 DatasetTable* result) {
    for (const auto& [key, node] : table) {
      const std::string name(key.str());
      const std::string field = absl::StrCat(path, ".", name);
      const char* place = general ? "[general]" : "[[datasets]]";
      const KeyRule* rule = FindKey(name);
      if (rule == nullptr) {
        const std::vector<std::string> valid = KeysOf(general);
        const std::string nearest = base::NearestName(name, valid);
        Report(field, key.source(),
               absl::StrCat("unknown key ", Quoted(name), " in ", place, Suggestion(nearest),
                            nearest.empty()
                                ? absl::StrCat(": expected one of ", absl::StrJoin(valid, ", "))
                                : ""));
      } else if (rule->unavailable != nullptr) {
        Report(field, key.source(),
               absl::StrCat("key ", Quoted(name), ": ", rule->unavailable,
                            " are not available for ", family_, " yet"));
      } else if (general && rule->place == KeyPlace::kDatasetOnly) {
        Report(field, key.source(),
               absl::StrCat("key ", Quoted(name), " belongs in [[datasets]], not in [general]"));
      } else {
        ReadValue(*rule, node, field, place, result);
      }
    }
  }

  void Report(const std::string& field, const toml::source_region& where, const std::string& what) {
    violations_->push_back({absl::StrCat("dataset.config.", field), absl::StrCat(At(where), what)});
  }

 private:
  static std::string Suggestion(const std::string& nearest) {
    return nearest.empty() ? "" : absl::StrCat(", did you mean \"", nearest, "\"?");
  }

  void ReadValue(const KeyRule& rule, const toml::node& node, const std::string& field,
                 const char* place, DatasetTable* result) {
    if (Assign(rule, node, result)) return;
    Report(field, node.source(),
           absl::StrCat("key ", Quoted(rule.name), " in ", place, " must be ",
                        ExpectedOf(rule.type), ", is ", TypeName(node)));
  }

  static bool Assign(const KeyRule& rule, const toml::node& node, DatasetTable* result) {
    switch (rule.type) {
      case KeyType::kCount: {
        const std::optional<int64_t> count = IntegerIn(node, 1, kLargestCount);
        if (!count.has_value()) return false;
        (std::string(rule.name) == "batch_size" ? result->batch_size : result->num_repeats) =
            static_cast<int>(*count);
        return true;
      }
      case KeyType::kText: {
        const toml::value<std::string>* text = node.as_string();
        if (text == nullptr) return false;
        *TextMember(rule.name, result) = text->get();
        return true;
      }
      case KeyType::kFlag: {
        const toml::value<bool>* flag = node.as_boolean();
        if (flag == nullptr) return false;
        (std::string(rule.name) == "enable_bucket" ? result->enable_bucket
                                                   : result->bucket_no_upscale) = flag->get();
        return true;
      }
      case KeyType::kResolution:
        return AssignResolution(node, result);
      case KeyType::kUnread:
        return true;
    }
    return false;
  }

  static std::string* TextMember(const std::string& name, DatasetTable* result) {
    if (name == "caption_extension") return &result->caption_extension;
    if (name == "image_directory") return &result->image_directory;
    if (name == "image_jsonl_file") return &result->image_jsonl_file;
    return &result->cache_directory;
  }

  static std::optional<int64_t> IntegerIn(const toml::node& node, int64_t least, int64_t most) {
    const toml::value<int64_t>* value = node.as_integer();
    if (value == nullptr || value->get() < least || value->get() > most) return std::nullopt;
    return value->get();
  }

  static bool AssignResolution(const toml::node& node, DatasetTable* result) {
    const toml::array* sides = node.as_array();
    if (sides == nullptr) {
      const std::optional<int64_t> side = IntegerIn(node, kShortestSide, kLongestSide);
      if (!side.has_value()) return false;
      result->width = result->height = *side;
      return true;
    }
    if (sides->size() != 2) return false;
    const std::optional<int64_t> width = IntegerIn((*sides)[0], kShortestSide, kLongestSide);
    const std::optional<int64_t> height = IntegerIn((*sides)[1], kShortestSide, kLongestSide);
    if (!width.has_value() || !height.has_value()) return false;
    result->width = *width;
    result->height = *height;
    return true;
  }

  const std::string family_;
  std::vector<FieldViolation>* const violations_;
};

void CheckSources(const DatasetTable& table, const std::string& path, SchemaReader* reader,
                  const toml::source_region& where) {
  if (!table.image_directory.empty() && !table.image_jsonl_file.empty()) {
    reader->Report(path, where, "image_directory and image_jsonl_file: only one may be given");
  }
  if (!table.image_jsonl_file.empty() && table.cache_directory.empty()) {
    reader->Report(path, where, "cache_directory is required with image_jsonl_file");
  }
  if (table.image_directory.empty() && table.image_jsonl_file.empty() &&
      table.cache_directory.empty()) {
    reader->Report(
        path, where,
        "one of image_directory, image_jsonl_file or (to train on all caches of a folder) "
        "cache_directory is required");
  }
}

DatasetTable ReadGeneral(const toml::table& root, SchemaReader* reader) {
  DatasetTable general;
  const toml::node* node = root.get("general");
  if (node == nullptr) return general;
  if (!node->is_table()) {
    reader->Report("general", node->source(),
                   absl::StrCat("one table [general] is meant, found ",
                                node->is_array_of_tables() ? "[[general]]" : TypeName(*node)));
    return general;
  }
  reader->ReadTable(*node->as_table(), "general", /*general=*/true, &general);
  return general;
}

}  // namespace

std::vector<DatasetTable> ParseDatasetFile(absl::string_view text, const std::string& family,
                                           std::vector<FieldViolation>* violations) {
  const toml::parse_result parsed = toml::parse(std::string_view(text.data(), text.size()));
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    violations->push_back(
        {"dataset.config", absl::StrCat(At(error.source()), std::string(error.description()))});
    return {};
  }
  const toml::table& root = parsed.table();
  SchemaReader reader(family, violations);
  reader.CheckTopLevel(root);
  const DatasetTable general = ReadGeneral(root, &reader);
  const toml::node* datasets = root.get("datasets");
  if (datasets == nullptr) {
    reader.Report("datasets", root.source(), "no [[datasets]] table: expected at least one");
    return {};
  }
  const toml::array* list = datasets->as_array();
  if (list == nullptr || list->empty() || !list->is_array_of_tables()) {
    reader.Report(
        "datasets", datasets->source(),
        absl::StrCat("a list of tables [[datasets]] is meant, found ",
                     datasets->is_table() ? "one table [datasets]" : TypeName(*datasets)));
    return {};
  }
  std::vector<DatasetTable> tables;
  for (size_t i = 0; i < list->size(); ++i) {
    const toml::table& table = *(*list)[i].as_table();
    const std::string path = absl::StrCat("datasets[", i, "]");
    DatasetTable result = general;
    result.line = table.source().begin.line;
    reader.ReadTable(table, path, /*general=*/false, &result);
    CheckSources(result, path, &reader, table.source());
    tables.push_back(std::move(result));
  }
  return tables;
}

}  // namespace blockswap::worker
