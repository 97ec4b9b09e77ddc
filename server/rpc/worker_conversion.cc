// SPDX-License-Identifier: Apache-2.0
// What workers and the server tell each other, from messages and to them.
#include <google/protobuf/util/json_util.h>

#include <string>
#include <utility>

#include "proto/text/utf8.h"
#include "server/base/log.h"
#include "server/base/redaction.h"
#include "server/rpc/proto_conversion.h"

namespace blockswap::server {
namespace {

// What workers tell is kept for good and shown in lists: an error text of a megabyte is cut, a
// token in it (of a download, say) goes.
constexpr size_t kMaxReasonBytes = 64;
constexpr size_t kMaxTextBytes = 4096;

std::string Cut(const std::string& text, size_t max_bytes) {
  return proto::Shorten(WithoutSecrets(proto::ToValidUtf8(text)), max_bytes);
}

Failure FromProto(const v1::Failure& failure) {
  Failure out;
  // A newer worker's category that is unknown here is still a failure.
  out.category = v1::FailureCategory_IsValid(failure.category())
                     ? static_cast<FailureCategory>(failure.category())
                     : FailureCategory::kWorkerCrash;
  out.reason = Cut(failure.reason(), kMaxReasonBytes);
  out.message = Cut(failure.message(), kMaxTextBytes);
  out.exit_code = failure.exit_code();
  out.signal = failure.signal();
  out.retryable = failure.retryable();
  out.step = failure.step();
  return out;
}

SwapCounters FromProto(const v1::SwapCounters& swap) {
  SwapCounters out;
  out.h2d_bytes = swap.h2d_bytes();
  out.d2h_bytes = swap.d2h_bytes();
  out.h2d_transfers = swap.h2d_transfers();
  out.d2h_transfers = swap.d2h_transfers();
  out.h2d_link_bytes = swap.h2d_link_bytes();
  out.d2h_link_bytes = swap.d2h_link_bytes();
  out.h2d_busy_seconds = swap.h2d_busy_seconds();
  out.d2h_busy_seconds = swap.d2h_busy_seconds();
  out.forward_stall_seconds = swap.forward_stall_seconds();
  out.backward_stall_seconds = swap.backward_stall_seconds();
  out.hits = swap.hits();
  out.late = swap.late();
  out.misses = swap.misses();
  out.blocks_on_device = swap.blocks_on_device();
  out.blocks_on_host = swap.blocks_on_host();
  out.blocks_in_flight = swap.blocks_in_flight();
  return out;
}

WorkerStep FromProto(const v1::Step& step) {
  WorkerStep out;
  out.step = step.step();
  out.epoch = step.epoch();
  out.loss = step.loss();
  out.learning_rate = step.learning_rate();
  out.grad_norm = step.grad_norm();
  out.seconds = step.seconds();
  out.samples = step.samples();
  out.phase_seconds.insert(step.phase_seconds().begin(), step.phase_seconds().end());
  out.swap = FromProto(step.swap());
  out.device_bytes_peak = step.device_bytes_peak();
  out.tokens = step.tokens();
  return out;
}

AllocatorStats FromProto(const v1::AllocatorStats& allocator) {
  AllocatorStats out;
  out.allocated_bytes = allocator.allocated_bytes();
  out.active_bytes = allocator.active_bytes();
  out.reserved_bytes = allocator.reserved_bytes();
  out.retries = allocator.retries();
  out.out_of_memory = allocator.out_of_memory();
  out.segments_allocated = allocator.segments_allocated();
  out.segments_freed = allocator.segments_freed();
  return out;
}

ReadyUpdate FromProto(const v1::Ready& ready) {
  ReadyUpdate out;
  out.plan_json = ready.plan_json();
  out.plan_text = ready.plan_text();
  out.device = ready.device();
  out.resumed_from = ready.resumed_from();
  out.start_step = ready.start_step();
  out.total_steps = ready.total_steps();
  out.skipped_checkpoints.assign(ready.skipped_checkpoints().begin(),
                                 ready.skipped_checkpoints().end());
  return out;
}

MemoryUpdate FromProto(const v1::MemoryReport& memory) {
  MemoryUpdate out;
  out.planned_bytes.insert(memory.device_planned_bytes().begin(),
                           memory.device_planned_bytes().end());
  out.allocated_bytes.insert(memory.device_allocated_bytes().begin(),
                             memory.device_allocated_bytes().end());
  out.peak_bytes.insert(memory.device_peak_bytes().begin(), memory.device_peak_bytes().end());
  out.device_budget_bytes = memory.device_budget_bytes();
  out.host_rss_bytes = memory.host_rss_bytes();
  out.host_pinned_bytes = memory.host_pinned_bytes();
  out.host_master_bytes = memory.host_master_bytes();
  out.host_locked_bytes = memory.host_locked_bytes();
  out.host_shared_bytes = memory.host_shared_bytes();
  out.host_file_bytes = memory.host_file_bytes();
  out.pinning_fell_back = memory.pinning_fell_back();
  out.host_planned_bytes.insert(memory.host_planned_bytes().begin(),
                                memory.host_planned_bytes().end());
  if (memory.has_allocator()) out.allocator = FromProto(memory.allocator());
  return out;
}

CheckpointUpdate FromProto(const v1::CheckpointCommitted& checkpoint) {
  CheckpointUpdate out;
  out.checkpoint.step = checkpoint.step();
  out.checkpoint.bytes = checkpoint.bytes();
  out.checkpoint.directory = checkpoint.directory();
  out.checkpoint.manifest_sha256 = checkpoint.manifest_sha256();
  out.seconds = checkpoint.seconds();
  return out;
}

}  // namespace

absl::StatusOr<WorkerUpdate> FromProto(const v1::WorkerMessage& message) {
  switch (message.body_case()) {
    case v1::WorkerMessage::kHello:
      return WorkerUpdate(AttachedUpdate{message.hello().build(), message.hello().pid()});
    case v1::WorkerMessage::kHeartbeat:
      return WorkerUpdate(HeartbeatUpdate{});
    case v1::WorkerMessage::kReady:
      return WorkerUpdate(FromProto(message.ready()));
    case v1::WorkerMessage::kSteps: {
      StepsUpdate steps;
      for (const v1::Step& step : message.steps().steps()) steps.steps.push_back(FromProto(step));
      return WorkerUpdate(std::move(steps));
    }
    case v1::WorkerMessage::kCheckpoint:
      return WorkerUpdate(FromProto(message.checkpoint()));
    case v1::WorkerMessage::kSample:
      return WorkerUpdate(SampleUpdate{message.sample().step(), message.sample().file()});
    case v1::WorkerMessage::kMemory:
      return WorkerUpdate(FromProto(message.memory()));
    case v1::WorkerMessage::kWarning:
      return WorkerUpdate(WarningUpdate{Cut(message.warning().reason(), kMaxReasonBytes),
                                        Cut(message.warning().message(), kMaxTextBytes)});
    case v1::WorkerMessage::kPhase:
      return WorkerUpdate(PhaseUpdate{message.phase().phase(), message.phase().bytes_done(),
                                      message.phase().bytes_total()});
    case v1::WorkerMessage::kExiting:
      return WorkerUpdate(
          ExitingUpdate{message.exiting().exit_code(), FromProto(message.exiting().failure()),
                        message.exiting().adapter_file(), message.exiting().step()});
    case v1::WorkerMessage::kReplanned:
      return WorkerUpdate(ReplanUpdate{message.replanned().plan_json(),
                                       message.replanned().plan_text(),
                                       message.replanned().reason(), message.replanned().step()});
    case v1::WorkerMessage::BODY_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("a worker message has no body this server knows");
}

v1::ServerMessage ToProto(const WorkerCommand& command) {
  v1::ServerMessage out;
  switch (command.kind) {
    case CommandKind::kCheckpoint:
      out.mutable_checkpoint();
      break;
    case CommandKind::kSample:
      out.mutable_sample();
      break;
    case CommandKind::kStop: {
      v1::Stop* stop = out.mutable_stop();
      stop->set_mode(command.stop_mode == StopMode::kSuspend ? v1::Stop::MODE_SUSPEND
                     : command.stop_mode == StopMode::kNow   ? v1::Stop::MODE_NOW
                                                             : v1::Stop::MODE_CANCEL);
      stop->set_grace_seconds(command.grace_seconds);
      break;
    }
    case CommandKind::kUpdateMemory: {
      google::protobuf::util::JsonParseOptions options;
      options.ignore_unknown_fields = true;
      // Our own text; what does not parse leaves the defaults, with which the worker plans anew.
      const auto parsed = google::protobuf::util::JsonStringToMessage(
          command.memory_json, out.mutable_memory()->mutable_memory(), options);
      if (!parsed.ok()) LogError("memory settings for a worker: {}", parsed.ToString());
      break;
    }
  }
  return out;
}

}  // namespace blockswap::server
