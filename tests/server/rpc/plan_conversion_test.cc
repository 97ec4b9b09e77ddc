// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/plan_conversion.h"

#include <limits>

#include <string>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "gtest/gtest.h"
#include "offload/plan/planner.h"
#include "server/rpc/status_conversion.h"

namespace blockswap::server {
namespace {

// Six blocks of which four stream, at speeds that are known.
offload::PlanRequest Request() {
  offload::PlanRequest request;
  for (int i = 0; i < 6; ++i) {
    offload::BlockProfile& block = request.model.blocks.emplace_back();
    block.bytes = 1024;
    block.forward_flops = 1;
  }
  request.model.forward_flops = 6;
  request.compute_flops_per_second = 1;
  request.link.h2d_bytes_per_second = 256;
  request.lockable_bytes = std::numeric_limits<int64_t>::max();
  request.constraints.blocks_to_swap = 4;
  return request;
}

int64_t Nanoseconds(const google::protobuf::Duration& duration) {
  return duration.seconds() * 1'000'000'000 + duration.nanos();
}

TEST(PlanToProtoTest, CarriesWhatAProgramNeeds) {
  const offload::SwapPlan plan = *offload::Plan(Request());
  const v1::MemoryPlan out = PlanToProto(plan);
  EXPECT_EQ(out.num_blocks(), 6);
  EXPECT_EQ(out.blocks_to_swap(), 4);
  EXPECT_EQ(out.streamed_blocks_size(), 4);
  EXPECT_EQ(out.granularity(), "block");
  EXPECT_EQ(out.h2d_bytes_per_step(), plan.prediction.h2d_bytes_per_step);
  EXPECT_EQ(Nanoseconds(out.step_time()), absl::ToInt64Nanoseconds(plan.prediction.step));
  EXPECT_EQ(Nanoseconds(out.bound_time()), absl::ToInt64Nanoseconds(plan.prediction.bound));
  EXPECT_GT(Nanoseconds(out.stall_time()), 0);
  EXPECT_LE(Nanoseconds(out.bound_time()), Nanoseconds(out.step_time()));
  EXPECT_EQ(out.text(), offload::PlanToText(plan));
}

TEST(PlanToProtoTest, AnUnknownTimeIsAbsentAndNoInstant) {
  offload::PlanRequest request = Request();
  request.compute_flops_per_second = 0;
  const v1::MemoryPlan out = PlanToProto(*offload::Plan(request));
  EXPECT_FALSE(out.has_step_time());
  EXPECT_FALSE(out.has_stall_time());
  EXPECT_FALSE(out.has_bound_time());
}

google::rpc::ErrorInfo InfoOf(const absl::Status& status) {
  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  EXPECT_TRUE(details.ParseFromString(ToGrpcStatus(status).error_details()));
  EXPECT_TRUE(details.details_size() > 0 && details.details(0).UnpackTo(&info));
  return info;
}

TEST(WillNotFitTest, TellsNeedAndHaveOfTheDeviceBesideTheText) {
  offload::PlanRequest request = Request();
  request.constraints.vram_budget_bytes = 100;
  const auto plan = offload::Plan(request);
  ASSERT_FALSE(plan.ok());
  const google::rpc::ErrorInfo info = InfoOf(WillNotFit(plan.status(), "cuda-0"));
  EXPECT_EQ(info.reason(), "WILL_NOT_FIT");
  EXPECT_EQ(info.metadata().at("device"), "cuda-0");
  EXPECT_EQ(info.metadata().at("resource"), "device_memory");
  EXPECT_EQ(info.metadata().at("have"), "100");
  const std::string message(plan.status().message());
  EXPECT_NE(message.find(info.metadata().at("need") + " bytes"), std::string::npos) << message;
  EXPECT_NE(message.find(info.metadata().at("would_fit")), std::string::npos) << message;
  // What it says it needs is enough.
  request.constraints.vram_budget_bytes = std::stoll(info.metadata().at("need"));
  request.constraints.ring_size = 1;
  EXPECT_TRUE(offload::Plan(request).ok()) << offload::Plan(request).status();
}

TEST(WillNotFitTest, TellsWhichMemoryOfTheHostIsShort) {
  offload::PlanRequest request = Request();
  request.constraints.host_budget_bytes = 1000;
  google::rpc::ErrorInfo info = InfoOf(WillNotFit(offload::Plan(request).status(), "host"));
  EXPECT_EQ(info.metadata().at("resource"), "host_memory");
  EXPECT_EQ(info.metadata().at("need"), "4096");
  EXPECT_EQ(info.metadata().at("have"), "1000");
  request = Request();
  request.constraints.pin_policy = offload::PinPolicy::kRequired;
  request.lockable_bytes = 4095;
  info = InfoOf(WillNotFit(offload::Plan(request).status(), "host"));
  EXPECT_EQ(info.metadata().at("resource"), "locked_memory");
  EXPECT_EQ(info.metadata().at("need"), "4096");
  EXPECT_EQ(info.metadata().at("have"), "4095");
  // And where every block has to stay.
  request = Request();
  request.constraints.blocks_to_swap.reset();
  request.constraints.checkpointing = offload::Toggle::kOff;
  request.constraints.vram_budget_bytes = 5000;
  info = InfoOf(WillNotFit(offload::Plan(request).status(), "host"));
  EXPECT_EQ(info.metadata().at("resource"), "device_memory");
  EXPECT_EQ(info.metadata().at("need"), "6144");
}

TEST(AlternativeToProtoTest, SaysWhatEachWouldChange) {
  offload::PlanRequest request = Request();
  request.constraints.blocks_to_swap.reset();
  request.constraints.vram_budget_bytes = 4 * 1024;
  const offload::SwapPlan plan = *offload::Plan(request);
  for (const offload::Alternative& other : offload::Alternatives(request, plan)) {
    const v1::PlanAlternative out = AlternativeToProto(other);
    EXPECT_EQ(out.vram_budget_bytes(), other.vram_budget_bytes);
    EXPECT_EQ(out.fits(), other.fits);
    EXPECT_EQ(out.num_streamed(), other.num_streamed);
    EXPECT_EQ(out.has_step_time(), other.fits);
    EXPECT_EQ(out.saves(), other.saves);
  }
}

}  // namespace
}  // namespace blockswap::server
