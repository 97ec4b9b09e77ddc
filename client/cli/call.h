// SPDX-License-Identifier: Apache-2.0
// The shape of a command that is one call: connect, find the job, call, show the answer or the
// error.
#ifndef BLOCKSWAP_CLIENT_CLI_CALL_H_
#define BLOCKSWAP_CLIENT_CLI_CALL_H_

#include <functional>

#include "absl/status/statusor.h"
#include "client/cli/arguments.h"
#include "client/cli/exit_code.h"
#include "client/cli/job_lookup.h"
#include "client/cli/session.h"
#include "client/cpp/server_client.h"

namespace blockswap::cli {

// Returns what `show(answer)` returns for the answer of `call(client)`, an absl::StatusOr. An error
// of the connection or the call is printed and returned as its exit code.
template <typename Call, typename Show>
ExitCode CallServer(Session& session, const Call& call, const Show& show) {
  const absl::StatusOr<client::ServerClient*> client = session.Client();
  if (!client.ok()) return session.Fail(client.status());
  const auto answer = std::invoke(call, **client);
  if (!answer.ok()) return session.Fail(answer.status());
  return show(*answer);
}

// The job that the command names, to `use(client, job)`, whose exit code is returned.
template <typename Use>
ExitCode WithJob(Session& session, const Arguments& arguments, const Use& use) {
  const absl::StatusOr<client::ServerClient*> client = session.Client();
  if (!client.ok()) return session.Fail(client.status());
  const absl::StatusOr<v1::Job> job = FindJob(**client, arguments.jobs[0]);
  if (!job.ok()) return session.Fail(job.status());
  return use(**client, *job);
}

// As CallServer, for `call(client, job)`.
template <typename Call, typename Show>
ExitCode CallForJob(Session& session, const Arguments& arguments, const Call& call,
                    const Show& show) {
  return WithJob(session, arguments, [&](client::ServerClient& client, const v1::Job& job) {
    const auto answer = call(client, job);
    if (!answer.ok()) return session.Fail(answer.status());
    return show(*answer);
  });
}

}  // namespace blockswap::cli

#endif  // BLOCKSWAP_CLIENT_CLI_CALL_H_
