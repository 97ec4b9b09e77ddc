// SPDX-License-Identifier: Apache-2.0
// One list of columns for a kind of record, by which its rows are selected, read and written.
#ifndef BLOCKSWAP_SERVER_STORE_ROW_COLUMNS_H_
#define BLOCKSWAP_SERVER_STORE_ROW_COLUMNS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "offload/base/status_macros.h"
#include "server/jobs/job.h"
#include "server/store/database.h"
#include "server/store/row_text.h"

namespace blockswap::server {

struct Blob {
  std::string bytes;
  bool operator==(const Blob&) const = default;
};
// What a column holds of a record; equal cells need not be written.
using Cell = std::variant<int64_t, double, std::string, Blob>;

inline Cell ToCell(const Failure& failure) { return FailureToText(failure); }
inline Cell ToCell(const Progress& progress) { return ProgressToText(progress); }
inline Cell ToCell(const PlanNeeds& needs) { return NeedsToText(needs); }
inline Cell ToCell(const std::vector<std::string>& list) { return ListToText(list); }
inline Cell ToCell(const std::map<std::string, std::string>& map) { return MapToText(map); }
inline Cell ToCell(const std::optional<Failure>& failure) {
  return failure.has_value() ? FailureToText(*failure) : std::string();
}
// Text, numbers, enumerators and truth values.
template <typename Value>
Cell ToCell(const Value& value) {
  if constexpr (std::is_same_v<Value, std::string>) {
    return value;
  } else if constexpr (std::is_floating_point_v<Value>) {
    return double{value};
  } else {
    return static_cast<int64_t>(value);
  }
}

inline void FromText(const std::string& text, Failure& failure) { failure = FailureFromText(text); }
inline void FromText(const std::string& text, Progress& progress) {
  progress = ProgressFromText(text);
}
inline void FromText(const std::string& text, PlanNeeds& needs) { needs = NeedsFromText(text); }
inline void FromText(const std::string& text, std::vector<std::string>& list) {
  list = ListFromText(text);
}
inline void FromText(const std::string& text, std::map<std::string, std::string>& map) {
  map = MapFromText(text);
}
inline void FromText(const std::string& text, std::optional<Failure>& failure) {
  if (!text.empty()) failure = FailureFromText(text);
}
template <typename Value>
void FromRow(const Statement& row, int index, Value& value) {
  if constexpr (std::is_same_v<Value, std::string>) {
    value = row.Text(index);
  } else if constexpr (std::is_floating_point_v<Value>) {
    value = row.Real(index);
  } else if constexpr (std::is_integral_v<Value> || std::is_enum_v<Value>) {
    value = static_cast<Value>(row.Int(index));
  } else {
    FromText(row.Text(index), value);
  }
}

template <typename Record>
struct Column {
  const char* name;
  Cell (*cell)(const Record& record);
  void (*read)(const Statement& row, int index, Record& record);
};

template <typename Member>
struct RecordOf;
template <typename Record, typename Value>
struct RecordOf<Value Record::*> {
  using Type = Record;
};

// The column `name`, which holds `kMember` of the record.
template <auto kMember, typename Record = typename RecordOf<decltype(kMember)>::Type>
constexpr Column<Record> Of(const char* name) {
  return {name, [](const Record& record) { return ToCell(record.*kMember); },
          [](const Statement& row, int index, Record& record) {
            FromRow(row, index, record.*kMember);
          }};
}
// The same for a string of any bytes.
template <auto kMember, typename Record = typename RecordOf<decltype(kMember)>::Type>
constexpr Column<Record> BlobOf(const char* name) {
  return {name, [](const Record& record) { return Cell(Blob{record.*kMember}); },
          [](const Statement& row, int index, Record& record) {
            FromRow(row, index, record.*kMember);
          }};
}

// "a, b, c", for SELECT and INSERT.
template <typename Record, size_t kCount>
std::string ColumnNames(const Column<Record> (&columns)[kCount]) {
  std::string names = columns[0].name;
  for (size_t i = 1; i < kCount; ++i) names.append(", ").append(columns[i].name);
  return names;
}
// ",?" for each column, after the mark of what comes before them.
template <typename Record, size_t kCount>
std::string MoreMarks(const Column<Record> (&)[kCount]) {
  std::string marks;
  for (size_t i = 0; i < kCount; ++i) marks.append(",?");
  return marks;
}

inline void BindCell(const Cell& cell, Statement& row) {
  if (const auto* number = std::get_if<int64_t>(&cell)) {
    row.Bind(*number);
  } else if (const auto* real = std::get_if<double>(&cell)) {
    row.Bind(*real);
  } else if (const auto* text = std::get_if<std::string>(&cell)) {
    row.BindText(*text);
  } else {
    row.BindBlob(std::get<Blob>(cell).bytes);
  }
}
// After what is bound already, in the order of ColumnNames.
template <typename Record, size_t kCount>
void BindRecord(const Column<Record> (&columns)[kCount], const Record& record, Statement& row) {
  for (const Column<Record>& column : columns) BindCell(column.cell(record), row);
}

// REQUIRES: a row is ready whose first columns are those of ColumnNames.
template <typename Record, size_t kCount>
Record ReadRecord(const Column<Record> (&columns)[kCount], const Statement& row) {
  Record record;
  for (size_t i = 0; i < kCount; ++i) columns[i].read(row, static_cast<int>(i), record);
  return record;
}

// What `read` makes of each row of a query, in order.
template <typename Read>
auto ReadRows(Statement& query, const Read& read)
    -> absl::StatusOr<std::vector<std::invoke_result_t<Read, const Statement&>>> {
  std::vector<std::invoke_result_t<Read, const Statement&>> records;
  while (true) {
    BLOCKSWAP_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return records;
    records.push_back(read(query));
  }
}

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_STORE_ROW_COLUMNS_H_
