// SPDX-License-Identifier: Apache-2.0
// Many resources of one kind in the notation that was asked for: columns for people, messages for
// programs, names for scripts.
#ifndef BLOCKSWAP_CLIENT_CLI_LISTING_H_
#define BLOCKSWAP_CLIENT_CLI_LISTING_H_

#include <functional>
#include <string>
#include <vector>

#include "client/cli/arguments.h"
#include "client/cli/exit_code.h"
#include "client/cli/session.h"
#include "google/protobuf/repeated_field.h"

namespace blockswap::cli {

template <typename Item>
struct Column {
  const char* name;
  std::function<std::string(const Item&)> text;
  bool is_wide = false;  // shown with -o wide, or when named by --columns
};

// Which columns are shown: those of `arguments.columns` in their order, or the usual ones.
// InvalidArgument: a column that there is not, with the nearest.
absl::StatusOr<std::vector<size_t>> ChooseColumns(const std::vector<std::string>& names,
                                                  const std::vector<bool>& is_wide,
                                                  const std::vector<std::string>& wanted,
                                                  bool show_wide);

// The table, cut to the terminal.
std::string RenderTable(const Session& session, const std::vector<std::string>& header,
                        const std::vector<std::vector<std::string>>& rows);

// `response` holds `items` and is what a program gets; `name` is what scripts get.
template <typename Item>
ExitCode PrintListing(const Session& session, const Arguments& arguments,
                      const google::protobuf::Message& response,
                      const google::protobuf::RepeatedPtrField<Item>& items,
                      const std::function<std::string(const Item&)>& name,
                      const std::vector<Column<Item>>& columns) {
  std::vector<std::string> names;
  std::vector<bool> is_wide;
  for (const Column<Item>& column : columns) {
    names.push_back(column.name);
    is_wide.push_back(column.is_wide);
  }
  const absl::StatusOr<std::vector<size_t>> chosen =
      ChooseColumns(names, is_wide, arguments.columns, session.format() == Format::kWide);
  if (!chosen.ok()) {
    session.Fail(chosen.status());
    return kUsage;
  }
  switch (session.format()) {
    case Format::kJson:
    case Format::kYaml:
      session.Print(response);
      return kOk;
    case Format::kJsonLines:
      for (const Item& item : items) session.PrintItem(item);
      return kOk;
    case Format::kName:
      for (const Item& item : items) session.out() << name(item) << "\n";
      return kOk;
    case Format::kTable:
    case Format::kWide:
      break;
  }
  std::vector<std::string> header;
  for (const size_t column : *chosen) header.push_back(names[column]);
  std::vector<std::vector<std::string>> rows;
  for (const Item& item : items) {
    std::vector<std::string> row;
    for (const size_t column : *chosen) row.push_back(columns[column].text(item));
    rows.push_back(std::move(row));
  }
  session.out() << RenderTable(session, header, rows);
  return kOk;
}

// The same for one resource: a table of one row, or the message.
template <typename Item>
ExitCode PrintOne(const Session& session, const Arguments& arguments, const Item& item,
                  const std::function<std::string(const Item&)>& name,
                  const std::vector<Column<Item>>& columns) {
  google::protobuf::RepeatedPtrField<Item> one;
  *one.Add() = item;
  return PrintListing<Item>(session, arguments, item, one, name, columns);
}

}  // namespace blockswap::cli

#endif  // BLOCKSWAP_CLIENT_CLI_LISTING_H_
