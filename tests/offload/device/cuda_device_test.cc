// SPDX-License-Identifier: Apache-2.0
#include "offload/device/cuda_device.h"

#include <gtest/gtest.h>

namespace blockswap::offload {
namespace {

TEST(CudaDeviceTest, ADeviceThatCannotExistIsAnAnswerNotACrash) {
  const absl::StatusOr<std::unique_ptr<CudaDevice>> device =
      CudaDevice::Create(/*ordinal=*/1 << 20);
  ASSERT_FALSE(device.ok());
  EXPECT_TRUE(device.status().code() == absl::StatusCode::kUnavailable ||
              device.status().code() == absl::StatusCode::kUnimplemented)
      << device.status();
  EXPECT_FALSE(device.status().message().empty());
}

}  // namespace
}  // namespace blockswap::offload
