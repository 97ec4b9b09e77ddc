// SPDX-License-Identifier: Apache-2.0
#include "server/store/job_query.h"

#include "absl/strings/str_cat.h"

namespace blockswap::server {
namespace {

using Key = JobOrder::Key;

class ListBuilder final {
 public:
  PreparedList Build(const JobListQuery& query) {
    list_.sql = "SELECT created_sequence FROM jobs WHERE ";
    AddStates(query.filter);
    AddTexts(query.filter);
    AddBounds("priority", query.filter.priority);
    AddBounds("create_micros", query.filter.create_micros);
    AddBounds("update_micros", query.filter.update_micros);
    AddBounds("end_micros", query.filter.end_micros);
    if (!query.filter.end_micros.is_empty()) Add("end_micros>0");
    if (query.order.key == Key::kQueuePosition) Add(kWaiting);
    if (query.after.has_value()) AddAfter(query.order, *query.after);
    if (is_first_) list_.sql += "1";
    absl::StrAppend(&list_.sql, " ORDER BY ", OrderBy(query.order), " LIMIT ", query.limit);
    return std::move(list_);
  }

 private:
  // Word for word as in the WHERE of the partial indices, or SQLite does not see that they fit;
  // likely, or it looks the states up one by one and sorts what it finds.
  static constexpr char kActive[] = "state NOT IN (8, 9, 10)";
  static constexpr char kTerminal[] = "likely(state IN (8, 9, 10))";
  static constexpr char kWaiting[] = "likely(state IN (1, 6))";

  void Add(const std::string& condition) {
    absl::StrAppend(&list_.sql, is_first_ ? "" : " AND ", condition);
    is_first_ = false;
  }
  void Add(const std::string& condition, int64_t value) {
    Add(condition);
    list_.values.emplace_back(value);
  }
  void Add(const std::string& condition, const std::string& value) {
    Add(condition);
    list_.values.emplace_back(value);
  }

  void AddStates(const JobFilter& filter) {
    // The states are numbers of ours: in the text they let the partial indices be used.
    if (filter.state.has_value()) Add(absl::StrCat("state=", static_cast<int>(*filter.state)));
    for (const JobState state : filter.not_states) {
      Add(absl::StrCat("state<>", static_cast<int>(state)));
    }
    if (filter.active) Add(kActive);
    if (filter.terminal) Add(kTerminal);
    if (filter.waiting) Add(kWaiting);
  }

  void AddTexts(const JobFilter& filter) {
    if (!filter.tenant.empty()) Add("tenant=?", filter.tenant);
    for (const auto& [key, value] : filter.labels) {
      Add("created_sequence IN (SELECT created_sequence FROM job_labels WHERE key=? AND value=?)",
          key);
      list_.values.emplace_back(value);
    }
    if (!filter.name_prefix.empty()) AddPrefix(filter.name_prefix);
    if (!filter.reason.empty()) Add("state_reason=?", filter.reason);
    if (!filter.retry_of.empty()) Add("retry_of<>'' AND retry_of=?", filter.retry_of);
    if (!filter.template_name.empty()) {
      Add("template_name<>'' AND template_name=?", filter.template_name);
    }
  }

  void AddPrefix(const std::string& prefix) {
    Add("created_sequence IN (SELECT created_sequence FROM jobs WHERE name>=? AND name<? UNION ALL "
        "SELECT created_sequence FROM jobs WHERE id>=? AND id<?)");
    // No valid UTF-8 has this byte: it comes behind whatever begins with the prefix.
    const std::string behind = prefix + "\xff";
    for (int i = 0; i < 2; ++i) {
      list_.values.emplace_back(prefix);
      list_.values.emplace_back(behind);
    }
  }

  void AddBounds(const char* column, const Bounds& bounds) {
    if (bounds.at_least.has_value()) Add(absl::StrCat(column, ">=?"), *bounds.at_least);
    if (bounds.at_most.has_value()) Add(absl::StrCat(column, "<=?"), *bounds.at_most);
  }

  static const char* ColumnOf(Key key) {
    switch (key) {
      case Key::kUpdateTime:
        return "update_micros";
      case Key::kEndTime:
        return "end_micros";
      case Key::kPriority:
      case Key::kQueuePosition:
        return "priority";
      case Key::kName:
        return "name";
      case Key::kCreateTime:
        break;
    }
    return "created_sequence";
  }

  void AddAfter(const JobOrder& order, const PageKey& after) {
    const char* than = order.descending ? "<" : ">";
    if (order.key == Key::kCreateTime) {
      return Add(absl::StrCat("created_sequence", than, "?"), after.created_sequence);
    }
    if (order.key == Key::kQueuePosition) {
      // Highest priority first, then the oldest; the other way round when descending.
      Add(absl::StrCat("(priority", order.descending ? ">" : "<", "? OR (priority=? AND ",
                       "created_sequence", than, "?))"),
          after.number);
      list_.values.emplace_back(after.number);
    } else if (order.key == Key::kName) {
      Add(absl::StrCat("(name, created_sequence)", than, "(?, ?)"), after.text);
    } else {
      Add(absl::StrCat("(", ColumnOf(order.key), ", created_sequence)", than, "(?, ?)"),
          after.number);
    }
    list_.values.emplace_back(after.created_sequence);
  }

  static std::string OrderBy(const JobOrder& order) {
    const char* way = order.descending ? " DESC" : "";
    if (order.key == Key::kCreateTime) return absl::StrCat("created_sequence", way);
    const char* of_key = order.key != Key::kQueuePosition ? way : (order.descending ? "" : " DESC");
    return absl::StrCat(ColumnOf(order.key), of_key, ", created_sequence", way);
  }

  PreparedList list_;
  bool is_first_ = true;
};

}  // namespace

Statement PreparedList::On(Database& database) const {
  Statement statement = database.Prepare(sql.c_str());
  for (const auto& value : values) {
    if (const auto* number = std::get_if<int64_t>(&value)) {
      statement.Bind(*number);
    } else {
      statement.BindText(std::get<std::string>(value));
    }
  }
  return statement;
}

PreparedList PrepareList(const JobListQuery& query) { return ListBuilder().Build(query); }

}  // namespace blockswap::server
