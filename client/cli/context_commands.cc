// SPDX-License-Identifier: Apache-2.0
// context list, use, add and remove, and config view: what this program knows of servers.
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/contexts.h"
#include "client/cli/listing.h"
#include "google/protobuf/struct.pb.h"
#include "proto/endpoint/default_endpoint.h"
#include "proto/text/utf8.h"

namespace blockswap::cli {
namespace {

using google::protobuf::Struct;

std::string Text(const Struct& item, const char* key) {
  const auto found = item.fields().find(key);
  return found == item.fields().end() ? "" : found->second.string_value();
}

// "-" where there is nothing.
std::function<std::string(const Struct&)> Show(const char* key) {
  return [key](const Struct& item) {
    const std::string text = Text(item, key);
    return text.empty() ? std::string("-") : text;
  };
}

// Nothing of this is a message of the API, so that it is one of no type: {"contexts": [...]}.
ExitCode PrintItems(const Session& session, const Arguments& arguments, const char* plural,
                    const char* key, const google::protobuf::RepeatedPtrField<Struct>& items,
                    const std::vector<Column<Struct>>& columns) {
  Struct response;
  auto* list = (*response.mutable_fields())[plural].mutable_list_value();
  for (const Struct& item : items) *list->add_values()->mutable_struct_value() = item;
  return PrintListing<Struct>(
      session, arguments, response, items,
      [key](const Struct& item) { return proto::ToPrintable(Text(item, key)); }, columns);
}

absl::StatusOr<Contexts> Read(const Session& session) {
  return ReadContexts(session.surroundings().contexts_file);
}

// Writes, and says `done`.
ExitCode Keep(const Session& session, const Contexts& contexts, const std::string& done) {
  const absl::Status written = WriteContexts(contexts, session.surroundings().contexts_file);
  if (!written.ok()) return session.Fail(written);
  session.err() << proto::ToPrintable(done) << "\n";
  return kOk;
}

// A context is used from any directory.
std::string Absolute(const std::string& path) {
  if (path.empty()) return path;
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.lexically_normal().string();
}

}  // namespace

ExitCode RunContextList(Session& session, const Arguments& arguments) {
  absl::StatusOr<Contexts> contexts = Read(session);
  if (!contexts.ok()) return session.Fail(contexts.status());
  const std::string current = contexts->current;
  contexts->by_name[kNoContext].server = proto::DefaultServerTarget();
  google::protobuf::RepeatedPtrField<Struct> items;
  for (const auto& [name, context] : contexts->by_name) {
    auto& fields = *items.Add()->mutable_fields();
    fields["name"].set_string_value(name);
    fields["current"].set_bool_value(name == current);
    for (const EndpointSetting& setting : EndpointSettings()) {
      if (setting.field != &Endpoint::context)
        fields[setting.key].set_string_value(context.*setting.field);
    }
  }
  return PrintItems(session, arguments, "contexts", "name", items,
                    {{"CURRENT",
                      [current](const Struct& item) {
                        return std::string(Text(item, "name") == current ? "*" : "");
                      }},
                     {"NAME", Show("name")},
                     {"SERVER", Show("server")},
                     {"TOKEN_FILE", Show("token_file")},
                     {"CA", Show("tls_ca"), true},
                     {"CERT", Show("tls_cert"), true},
                     {"KEY", Show("tls_key"), true}});
}

ExitCode RunContextUse(Session& session, const Arguments& arguments) {
  absl::StatusOr<Contexts> contexts = Read(session);
  if (!contexts.ok()) return session.Fail(contexts.status());
  std::string server = proto::DefaultServerTarget();
  if (arguments.context != kNoContext) {
    const absl::StatusOr<Endpoint> context = FindContext(*contexts, arguments.context);
    if (!context.ok()) return session.Fail(context.status());
    server = context->server;
  }
  contexts->current = arguments.context;
  return Keep(session, *contexts, absl::StrCat("using ", arguments.context, ": ", server));
}

ExitCode RunContextAdd(Session& session, const Arguments& arguments) {
  Endpoint context = arguments.endpoint;
  context.context.clear();
  const std::string& name = arguments.context;
  if (context.server.empty()) {
    session.Fail(absl::InvalidArgumentError(
        "a context needs a server: blockswap context add NAME --server host:7543"));
    return kUsage;
  }
  for (const absl::Status& checked :
       {CheckContextName(name), client::ServerClient::CheckTarget(context.server)}) {
    if (checked.ok()) continue;
    session.Fail(checked);
    return kUsage;
  }
  if (context.token_file == "-") {
    session.Fail(absl::InvalidArgumentError(
        "a context keeps the name of a token's file, and standard input has none"));
    return kUsage;
  }
  for (const EndpointSetting& setting : EndpointSettings()) {
    if (setting.field != &Endpoint::server)
      context.*setting.field = Absolute(context.*setting.field);
  }
  absl::StatusOr<Contexts> contexts = Read(session);
  if (!contexts.ok()) return session.Fail(contexts.status());
  if (contexts->by_name.count(name) > 0 && !arguments.replace) {
    return session.Fail(absl::AlreadyExistsError(
        absl::StrCat("there is a context '", name, "' already; --replace overwrites it")));
  }
  contexts->by_name[name] = context;
  return Keep(session, *contexts,
              absl::StrCat("added ", name, "; to use it: blockswap context use ", name));
}

ExitCode RunContextRemove(Session& session, const Arguments& arguments) {
  absl::StatusOr<Contexts> contexts = Read(session);
  if (!contexts.ok()) return session.Fail(contexts.status());
  const absl::StatusOr<Endpoint> context = FindContext(*contexts, arguments.context);
  if (!context.ok()) return session.Fail(context.status());
  contexts->by_name.erase(arguments.context);
  std::string done = absl::StrCat("removed ", arguments.context);
  if (contexts->current == arguments.context) {
    contexts->current = kNoContext;
    absl::StrAppend(&done, "; using ", kNoContext);
  }
  return Keep(session, *contexts, done);
}

ExitCode RunConfigView(Session& session, const Arguments& arguments) {
  const absl::StatusOr<ResolvedEndpoint> resolved = session.FindEndpoint();
  if (!resolved.ok()) return session.Fail(resolved.status());
  google::protobuf::RepeatedPtrField<Struct> items;
  for (const EndpointSetting& setting : EndpointSettings()) {
    auto& fields = *items.Add()->mutable_fields();
    fields["key"].set_string_value(setting.key);
    fields["value"].set_string_value(resolved->endpoint.*setting.field);
    fields["origin"].set_string_value(resolved->origins.*setting.field);
  }
  return PrintItems(session, arguments, "settings", "key", items,
                    {{"SETTING", Show("key")},
                     {"VALUE", Show("value")},
                     {"FROM", Show("origin"), /*is_wide=*/!arguments.origin}});
}

}  // namespace blockswap::cli
