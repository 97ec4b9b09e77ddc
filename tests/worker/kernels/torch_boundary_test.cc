// SPDX-License-Identifier: Apache-2.0
#include "worker/kernels/torch_boundary.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <string>

namespace blockswap::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(TorchBoundaryTest, ReturnsTheBodysStatus) {
  EXPECT_TRUE(RunContained([] { return absl::OkStatus(); }).ok());
  EXPECT_EQ(RunContained([] { return absl::NotFoundError("gone"); }), absl::NotFoundError("gone"));
}

TEST(TorchBoundaryTest, AShapeErrorOfLibTorchIsInternalWithoutABacktrace) {
  const absl::Status status = RunContained([] {
    at::mm(at::zeros({2, 3}), at::zeros({2, 3}));
    return absl::OkStatus();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(Message(status), HasSubstr("mat1 and mat2"));
  EXPECT_THAT(Message(status), Not(HasSubstr("\n")));
}

TEST(TorchBoundaryTest, OutOfMemoryIsResourceExhausted) {
  EXPECT_EQ(RunContained([]() -> absl::Status { throw std::bad_alloc(); }).code(),
            absl::StatusCode::kResourceExhausted);
  const absl::Status status = RunContained(
      []() -> absl::Status { C10_THROW_ERROR(OutOfMemoryError, "asked 5 bytes, have 4"); });
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Message(status), "asked 5 bytes, have 4");
}

TEST(TorchBoundaryTest, OtherExceptionsAreUnknown) {
  const absl::Status status =
      RunContained([]() -> absl::Status { throw std::runtime_error("odd\nmore"); });
  EXPECT_EQ(status.code(), absl::StatusCode::kUnknown);
  EXPECT_THAT(Message(status), HasSubstr("odd"));
  EXPECT_THAT(Message(status), Not(HasSubstr("more")));
}

}  // namespace
}  // namespace blockswap::worker
