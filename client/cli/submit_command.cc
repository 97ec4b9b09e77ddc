// SPDX-License-Identifier: Apache-2.0
// submit, plan and validate: what begins with a job file.
#include <algorithm>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/call.h"
#include "client/cli/commands.h"
#include "client/cli/follow.h"
#include "client/cli/interrupt.h"
#include "client/cli/job_source.h"
#include "client/cli/job_text.h"
#include "client/cli/people_text.h"
#include "client/cli/table.h"
#include "client/cpp/request_id.h"
#include "offload/base/byte_size.h"
#include "proto/text/utf8.h"

namespace blockswap::cli {
namespace {

v1::CreateJobRequest MakeRequest(const LoadedJob& job, const std::string& id, bool validate_only) {
  v1::CreateJobRequest request;
  request.set_job_id(id);
  *request.mutable_spec() = job.spec;
  request.set_request_id(client::NewRequestId());
  request.set_validate_only(validate_only);
  return request;
}

// The faults of the file with those that the server finds in the rest of it, so that one run shows
// all.
ExitCode FailWithAllViolations(Session& session, const LoadedJob& job) {
  std::vector<client::FieldViolation> violations = job.violations;
  const absl::StatusOr<client::ServerClient*> client = session.Client();
  if (client.ok()) {
    const absl::StatusOr<v1::Job> checked =
        (*client)->CreateJob(MakeRequest(job, "", /*validate_only=*/true));
    for (const client::FieldViolation& found : client::DetailsOf(checked.status()).violations) {
      const bool known =
          std::any_of(job.violations.begin(), job.violations.end(), [&found](const auto& own) {
            return found.field == own.field || found.field == absl::StrCat("spec.", own.field);
          });
      if (!known) violations.push_back(found);
    }
  }
  return session.Fail(absl::StrCat("the job file has ", violations.size(), " faults"), violations);
}

void PrintWarnings(const Session& session,
                   const google::protobuf::RepeatedPtrField<std::string>& warnings) {
  for (const std::string& warning : warnings)
    session.err() << "warning: " << proto::ToPrintable(warning) << "\n";
}

// The spec to send, or the exit code that reading it ended with.
std::optional<LoadedJob> Load(Session& session, const Arguments& arguments, ExitCode* code) {
  absl::StatusOr<LoadedJob> job = LoadJob(arguments.source);
  if (!job.ok()) {
    *code = session.Fail(job.status());
    return std::nullopt;
  }
  if (!job->violations.empty()) {
    *code = FailWithAllViolations(session, *job);
    return std::nullopt;
  }
  return *std::move(job);
}

std::string StepText(double seconds) {
  if (seconds <= 0) return "-";
  return seconds < 1 ? absl::StrFormat("%.3f ms", 1e3 * seconds)
                     : absl::StrFormat("%.3f s", seconds);
}

// What another amount of memory would change.
std::string AlternativesText(const v1::PlanJobResponse& response, int width) {
  if (response.alternatives().empty()) return "";
  Table table({"WITH VRAM", "SWAP", "STEP", "EACH STEP", "CHANGE"});
  for (const v1::PlanAlternative& other : response.alternatives()) {
    const double step =
        static_cast<double>(other.step_time().seconds()) + 1e-9 * other.step_time().nanos();
    table.AddRow({base::FormatByteSize(other.vram_budget_bytes()),
                  other.fits() ? absl::StrCat(other.blocks_to_swap()) : "-", StepText(step),
                  other.fits() ? base::FormatByteSize(other.h2d_bytes_per_step()) : "-",
                  other.saves()});
  }
  return absl::StrCat("alternatives\n", table.Render(width));
}

void PrintSubmitted(Session& session, const Arguments& arguments, const v1::Job& job) {
  const std::string id = JobId(job.name());
  if (arguments.quiet || session.format() == Format::kName) {
    session.out() << id << std::endl;
    return;
  }
  session.out() << "submitted " << id << std::endl;
  PrintWarnings(session, job.warnings());
  if (job.has_plan()) session.err() << PlanText(job.plan());
  if (arguments.follow || arguments.wait) return;
  session.err() << "  blockswap watch " << id << "       to see it train\n"
                << "  blockswap logs -f " << id << "     for its log\n"
                << "  blockswap cancel " << id << "      to stop it\n";
}

}  // namespace

ExitCode RunSubmit(Session& session, const Arguments& arguments) {
  // Before the connection: its threads must inherit the signal mask.
  std::unique_ptr<InterruptGuard> guard;
  if ((arguments.follow || arguments.wait) && session.surroundings().handles_interrupts) {
    guard = std::make_unique<InterruptGuard>([&session] { session.Interrupt(); });
  }
  ExitCode code = kOk;
  const std::optional<LoadedJob> source = Load(session, arguments, &code);
  if (!source.has_value()) return code;
  const absl::StatusOr<client::ServerClient*> client = session.Client();
  if (!client.ok()) return session.Fail(client.status());
  const absl::StatusOr<v1::Job> job =
      (*client)->CreateJob(MakeRequest(*source, arguments.id, arguments.dry_run));
  if (!job.ok()) return session.Fail(job.status());

  if (arguments.dry_run) {
    PrintWarnings(session, job->warnings());
    return session.Show(*job, PlanText(job->plan()));
  }
  const bool stays = arguments.follow || arguments.wait;
  if (session.structured() && !stays) {
    session.Print(*job);
    return kOk;
  }
  if (!session.structured()) PrintSubmitted(session, arguments, *job);
  if (arguments.follow) return FollowJob(session, *job);
  return arguments.wait ? AwaitJob(session, *job) : kOk;
}

ExitCode RunPlan(Session& session, const Arguments& arguments) {
  ExitCode code = kOk;
  const std::optional<LoadedJob> source = Load(session, arguments, &code);
  if (!source.has_value()) return code;
  v1::PlanJobRequest request;
  *request.mutable_spec() = source->spec;
  request.set_device_profile(arguments.device_profile);
  return CallServer(
      session, [&request](client::ServerClient& client) { return client.PlanJob(request); },
      [&session](const v1::PlanJobResponse& response) {
        PrintWarnings(session, response.warnings());
        return session.Show(
            response,
            absl::StrCat(PlanText(response.plan()),
                         AlternativesText(response, session.table_width()), "on ",
                         proto::ToPrintable(response.device()), ", ", response.num_items(),
                         " items, ", response.total_steps(), " steps\n"));
      });
}

ExitCode RunValidate(Session& session, const Arguments& arguments) {
  ExitCode code = kOk;
  const std::optional<LoadedJob> source = Load(session, arguments, &code);
  if (!source.has_value()) return code;
  const v1::CreateJobRequest request = MakeRequest(*source, "", /*validate_only=*/true);
  return CallServer(
      session, [&request](client::ServerClient& client) { return client.CreateJob(request); },
      [&](const v1::Job& job) {
        PrintWarnings(session, job.warnings());
        return session.Show(
            job, absl::StrCat("valid: ", proto::ToPrintable(arguments.source.file), "\n"));
      });
}

}  // namespace blockswap::cli
