// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/strange_speech.h"

#include <grpcpp/grpcpp.h>
#include <poll.h>

#include <fstream>
#include <memory>

#include "blockswap/v1/worker.grpc.pb.h"
#include "worker/channel/exit_report_json.h"
#include "worker/channel/process_identity.h"

namespace blockswap::worker {
namespace {

constexpr int64_t kSteps = 2;

void WaitABit() { ::poll(nullptr, 0, 2); }

std::unique_ptr<v1::WorkerService::Stub> StubOf(const ServerChannelOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxSendMessageSize(-1);
  // A new one connects at once, however often the last found no server.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return v1::WorkerService::NewStub(grpc::CreateCustomChannel(
      "unix:" + options.socket_path, grpc::experimental::LocalCredentials(UDS), arguments));
}

v1::WorkerMessage HelloOf(const ServerChannelOptions& options, int64_t protocol) {
  const ProcessIdentity self = ThisProcess();
  v1::WorkerMessage message;
  v1::Hello* hello = message.mutable_hello();
  hello->set_protocol(static_cast<int>(protocol));
  hello->set_build("another release");
  hello->set_job_uid(options.job_uid);
  hello->set_attempt(options.attempt);
  hello->set_token(options.token);
  hello->set_pid(self.pid);
  hello->set_process_start_time(self.start_time);
  hello->set_boot_id(self.boot_id);
  return message;
}

}  // namespace

void SpeakGarbage(const ServerChannelOptions& options, bool is_huge) {
  const auto stub = StubOf(options);
  const v1::WorkerMessage hello = HelloOf(options, 1);
  v1::WorkerMessage huge;
  huge.set_sequence(1);
  huge.mutable_warning()->set_message(std::string(static_cast<size_t>(64) << 20, 'x'));
  while (true) {
    grpc::ClientContext context;
    const auto stream = stub->Attach(&context);
    v1::ServerMessage answer;
    stream->Write(hello);
    stream->Write(is_huge ? huge : hello);
    while (stream->Read(&answer)) {
    }
    stream->Finish().error_code();
    WaitABit();
  }
}

int SpeakAnotherProtocol(const ServerChannelOptions& options, const std::string& output,
                         const SpokenProtocols& protocols) {
  bool was_welcome = false;
  grpc::StatusCode end = grpc::StatusCode::OK;
  while (end != grpc::StatusCode::INVALID_ARGUMENT) {
    const auto stub = StubOf(options);
    grpc::ClientContext context;
    const auto stream = stub->Attach(&context);
    stream->Write(HelloOf(options, was_welcome ? protocols.later : protocols.first));
    v1::ServerMessage answer;
    if (stream->Read(&answer)) {
      was_welcome = true;
      v1::WorkerMessage ready, steps;
      ready.set_sequence(1);
      ready.mutable_ready()->set_total_steps(kSteps + 1);
      stream->Write(ready);
      steps.set_sequence(2);
      steps.mutable_steps()->add_steps()->set_step(kSteps);
      std::ofstream(output + "/fake-step") << kSteps;
      stream->Write(steps);
      while (stream->Read(&answer)) {
      }
    }
    end = stream->Finish().error_code();
    WaitABit();
  }
  ExitReport report;
  report.code = was_welcome ? ExitCode::kCancelled : ExitCode::kInternal;
  report.step = was_welcome ? kSteps : 0;
  std::ofstream(output + "/exit.json") << ExitReportToJson(report, options.attempt);
  return static_cast<int>(report.code);
}

}  // namespace blockswap::worker
