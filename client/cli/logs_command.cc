// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "client/cli/commands.h"
#include "client/cli/follow.h"
#include "client/cli/interrupt.h"
#include "client/cli/job_lookup.h"
#include "client/cli/json_output.h"
#include "proto/text/utf8.h"

namespace blockswap::cli {

ExitCode RunLogs(Session& session, const Arguments& arguments) {
  std::unique_ptr<InterruptGuard> guard;
  if (arguments.follow && session.surroundings().handles_interrupts) {
    guard = std::make_unique<InterruptGuard>([&session] { session.Interrupt(); });
  }
  const absl::StatusOr<client::ServerClient*> client = session.Client();
  if (!client.ok()) return session.Fail(client.status());
  const absl::StatusOr<v1::Job> job = FindJob(**client, arguments.jobs[0]);
  if (!job.ok()) return session.Fail(job.status());

  v1::StreamJobLogsRequest request;
  request.set_name(job->name());
  request.set_attempt(arguments.attempt);
  request.set_follow(arguments.follow);
  if (arguments.tail.has_value()) request.set_tail_lines(*arguments.tail);
  const absl::Status status =
      (*client)->StreamJobLogs(request, client::StreamOptions(), [&](const v1::LogChunk& chunk) {
        if (session.structured()) {
          session.PrintItem(chunk);
        } else if (session.surroundings().out_is_terminal) {
          session.out() << proto::ToPrintable(chunk.text());
        } else {
          session.out() << chunk.text();
        }
        session.out().flush();
        return session.out().good();
      });
  if (session.interrupted()) return Detached(session, job->name());
  return status.ok() ? kOk : session.Fail(status);
}

}  // namespace blockswap::cli
