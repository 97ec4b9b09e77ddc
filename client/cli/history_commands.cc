// SPDX-License-Identifier: Apache-2.0
// attempts, events, checkpoints and templates: what a job has behind it, what the server offers.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/cli/call.h"
#include "client/cli/commands.h"
#include "client/cli/confirm.h"
#include "client/cli/event_view.h"
#include "client/cli/listing.h"
#include "client/cli/pages.h"
#include "client/cli/people_text.h"
#include "offload/base/byte_size.h"
#include "proto/text/utf8.h"

namespace blockswap::cli {
namespace {

// "jobs/a/attempts/2" -> "2".
std::string LastPart(const std::string& name) { return name.substr(name.rfind('/') + 1); }

// What CallForJob calls for all of a list that belongs to the job; `items` names the repeated
// field.
template <typename Request, typename Response, typename Items>
auto EveryPage(absl::StatusOr<Response> (client::ServerClient::*list)(const Request&),
               Items* (Response::*items)()) {
  return [list, items](client::ServerClient& client, const v1::Job& job) {
    Request request;
    request.set_parent(job.name());
    request.set_page_size(kLargestPage);
    return ReadPages(client, list, items, request);
  };
}

std::vector<Column<v1::Checkpoint>> CheckpointColumns(absl::Time now) {
  using Checkpoint = v1::Checkpoint;
  return {
      {"STEP", [](const Checkpoint& checkpoint) { return absl::StrCat(checkpoint.step()); }},
      {"SIZE",
       [](const Checkpoint& checkpoint) { return base::FormatByteSize(checkpoint.bytes()); }},
      {"CREATED",
       [now](const Checkpoint& checkpoint) { return Ago(checkpoint.create_time(), now); }},
      {"SHA256", [](const Checkpoint& checkpoint) { return checkpoint.manifest_sha256(); }, true},
      {"DIRECTORY", [](const Checkpoint& checkpoint) { return checkpoint.directory(); }},
  };
}

std::string CheckpointName(const Arguments& arguments, const v1::Job& job) {
  return absl::StrCat(job.name(), "/checkpoints/", arguments.checkpoint);
}

ExitCode DeleteCheckpoint(const Session& session, const Arguments& arguments,
                          client::ServerClient& client, const v1::Job& job) {
  const std::string what =
      absl::StrCat("checkpoint ", arguments.checkpoint, " of ", JobId(job.name()));
  if (!Confirm(session, arguments, absl::StrCat("delete ", what, "?"))) return kError;
  v1::DeleteCheckpointRequest request;
  request.set_name(CheckpointName(arguments, job));
  const absl::Status deleted = client.DeleteCheckpoint(request);
  if (!deleted.ok()) return session.Fail(deleted);
  session.err() << "deleted " << proto::ToPrintable(what) << "\n";
  return kOk;
}

}  // namespace

ExitCode RunAttempts(Session& session, const Arguments& arguments) {
  using Attempt = v1::Attempt;
  const absl::Time now = absl::Now();
  const std::vector<Column<Attempt>> columns = {
      {"ATTEMPT", [](const Attempt& attempt) { return absl::StrCat(attempt.number()); }},
      {"DEVICE", [](const Attempt& attempt) { return attempt.device(); }},
      {"STARTED", [now](const Attempt& attempt) { return Ago(attempt.start_time(), now); }},
      {"ENDED", [now](const Attempt& attempt) { return Ago(attempt.end_time(), now); }},
      {"STEPS",
       [](const Attempt& attempt) {
         return absl::StrCat(attempt.start_step(), "-", attempt.end_step());
       }},
      {"FAILURE", [](const Attempt& attempt) {
         return attempt.has_failure() ? FailureText(attempt.failure()) : std::string("-");
       }}};
  return CallForJob(
      session, arguments,
      EveryPage(&client::ServerClient::ListAttempts, &v1::ListAttemptsResponse::mutable_attempts),
      [&](const v1::ListAttemptsResponse& attempts) {
        return PrintListing<Attempt>(
            session, arguments, attempts, attempts.attempts(),
            [](const Attempt& attempt) { return LastPart(attempt.name()); }, columns);
      });
}

ExitCode RunEvents(Session& session, const Arguments& arguments) {
  using Event = v1::JobEvent;
  const auto number = [](const Event& event) { return absl::StrCat(event.sequence()); };
  return CallForJob(
      session, arguments,
      EveryPage(&client::ServerClient::ListJobEvents, &v1::ListJobEventsResponse::mutable_events),
      [&](const v1::ListJobEventsResponse& events) {
        return PrintListing<Event>(
            session, arguments, events, events.events(), number,
            {{"NUMBER", number},
             {"TIME", [](const Event& event) { return LocalTime(event.time()); }},
             {"EVENT", [](const Event& event) { return EventLine(event); }}});
      });
}

ExitCode RunCheckpointsList(Session& session, const Arguments& arguments) {
  return CallForJob(
      session, arguments,
      EveryPage(&client::ServerClient::ListCheckpoints,
                &v1::ListCheckpointsResponse::mutable_checkpoints),
      [&](const v1::ListCheckpointsResponse& checkpoints) {
        return PrintListing<v1::Checkpoint>(
            session, arguments, checkpoints, checkpoints.checkpoints(),
            [](const v1::Checkpoint& checkpoint) { return LastPart(checkpoint.name()); },
            CheckpointColumns(absl::Now()));
      });
}

ExitCode RunCheckpointsGet(Session& session, const Arguments& arguments) {
  return CallForJob(
      session, arguments,
      [&arguments](client::ServerClient& client, const v1::Job& job) {
        v1::GetCheckpointRequest request;
        request.set_name(CheckpointName(arguments, job));
        return client.GetCheckpoint(request);
      },
      [&](const v1::Checkpoint& checkpoint) {
        return PrintOne<v1::Checkpoint>(
            session, arguments, checkpoint,
            [](const v1::Checkpoint& each) { return LastPart(each.name()); },
            CheckpointColumns(absl::Now()));
      });
}

ExitCode RunCheckpointsDelete(Session& session, const Arguments& arguments) {
  return WithJob(session, arguments, [&](client::ServerClient& client, const v1::Job& job) {
    return DeleteCheckpoint(session, arguments, client, job);
  });
}

ExitCode RunTemplates(Session& session, const Arguments& arguments) {
  using Template = v1::JobTemplate;
  const auto name = [](const Template& each) { return LastPart(each.name()); };
  const std::vector<Column<Template>> columns = {
      {"TEMPLATE", name},
      {"MODEL", [](const Template& each) { return each.spec().model().architecture(); }},
      {"MAY BE SET",
       [](const Template& each) { return absl::StrJoin(each.allowed_overrides(), ", "); }},
      {"DESCRIPTION", [](const Template& each) { return each.description(); }}};
  return CallServer(
      session,
      [](client::ServerClient& client) {
        return ReadPages(client, &client::ServerClient::ListTemplates,
                         &v1::ListTemplatesResponse::mutable_templates, v1::ListTemplatesRequest());
      },
      [&](const v1::ListTemplatesResponse& templates) {
        return PrintListing<Template>(session, arguments, templates, templates.templates(), name,
                                      columns);
      });
}

}  // namespace blockswap::cli
