// SPDX-License-Identifier: Apache-2.0
#include "offload/host/shared_masters.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "offload/base/byte_size.h"
#include "offload/base/master_file.h"
#include "offload/base/proc_file.h"
#include "offload/device/host_device.h"
#include "offload/device/host_memory.h"
#include "offload/host/host_masters.h"

namespace blockswap::offload {
namespace {

using ::testing::HasSubstr;

const std::vector<int64_t> kSizes = {8192, 4096, 12288, 256};

// Fills block b with bytes b + 1 and counts what it was asked.
struct CountingReader {
  int reads = 0;
  BlockReader Function() {
    return [this](int block, absl::Span<std::byte> destination) {
      ++reads;
      std::fill(destination.begin(), destination.end(), static_cast<std::byte>(block + 1));
      return absl::OkStatus();
    };
  }
};

class SharedMastersTest : public ::testing::Test {
 protected:
  SharedMastersTest() : fd_(*base::CreateMasterFile("key")), device_(*HostDevice::Create({})) {}
  ~SharedMastersTest() override { close(fd_); }

  absl::StatusOr<HostMasters> Masters(SharedMasters* shared, const std::vector<int>& blocks,
                                      PinPolicy policy = PinPolicy::kNever) {
    std::vector<MasterSpec> specs;
    for (const int block : blocks) {
      specs.push_back({.bytes = kSizes[static_cast<size_t>(block)], .block = block});
    }
    return HostMasters::Create(device_.get(), specs, policy, {.shared = shared});
  }

  const int fd_;
  std::unique_ptr<HostDevice> device_;
};

TEST_F(SharedMastersTest, TheSecondJobFindsTheBlocksOfTheFirstAndReadsNothing) {
  CountingReader first, second;
  auto view = *SharedMasters::Open(fd_, "key", kSizes);
  HostMasters masters = *Masters(view.get(), {0, 2});
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(masters.Fill(i, first.Function()).ok());
  EXPECT_EQ(first.reads, 2);
  EXPECT_EQ(masters.reused_bytes(), 0);

  auto other_view = *SharedMasters::Open(fd_, "key", kSizes);
  HostMasters others = *Masters(other_view.get(), {0, 1, 2});
  const int64_t taken = base::MasterFileBytes(fd_);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(others.Fill(i, second.Function()).ok());
  EXPECT_EQ(second.reads, 1);  // block 1, which nobody had
  EXPECT_EQ(others.reused_bytes(), kSizes[0] + kSizes[2]);
  EXPECT_EQ(others.shared_bytes(), others.bytes());
  EXPECT_EQ(base::MasterFileBytes(fd_), taken);
  EXPECT_EQ(others.buffer(0).data[8191], std::byte{1});
  EXPECT_EQ(others.buffer(1).data[4095], std::byte{2});
  EXPECT_EQ(others.buffer(2).data[12287], std::byte{3});
}

TEST_F(SharedMastersTest, OnlyBlocksThatAreStreamedTakeMemory) {
  EXPECT_LE(base::MasterFileBytes(fd_), PageSize());
  auto view = *SharedMasters::Open(fd_, "key", kSizes);
  CountingReader reader;
  HostMasters masters = *Masters(view.get(), {1});
  ASSERT_TRUE(masters.Fill(0, reader.Function()).ok());
  EXPECT_EQ(base::MasterFileBytes(fd_), PageSize() + 4096);  // control area and block 1
}

TEST_F(SharedMastersTest, FilledBlocksAreReadOnly) {
  auto view = *SharedMasters::Open(fd_, "key", kSizes);
  CountingReader reader;
  HostMasters masters = *Masters(view.get(), {1});
  ASSERT_TRUE(masters.Fill(0, reader.Function()).ok());
  EXPECT_DEATH(masters.buffer(0).data[0] = std::byte{9}, "");
}

TEST_F(SharedMastersTest, EachJobLocksTheSharedPagesForItself) {
  const auto locked_now = [] { return base::ReadProcBytes("/proc/self/status", "VmLck").value(); };
  const int64_t before = locked_now();
  auto view = *SharedMasters::Open(fd_, "key", kSizes);
  CountingReader reader;
  {
    HostMasters masters = *Masters(view.get(), {0, 3}, PinPolicy::kRequired);
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(masters.Fill(i, reader.Function()).ok());
    EXPECT_EQ(masters.locked_bytes(), kSizes[0] + PageSize());  // block 3 takes part of a page
    EXPECT_EQ(locked_now() - before, masters.locked_bytes());
    HostMasters others = *Masters(view.get(), {0}, PinPolicy::kRequired);
    ASSERT_TRUE(others.Fill(0, reader.Function()).ok());
    EXPECT_EQ(locked_now() - before, masters.locked_bytes() + others.locked_bytes());
  }
  EXPECT_EQ(locked_now(), before);
  EXPECT_TRUE(view->IsReady(0));
  EXPECT_FALSE(view->IsReady(1));
}

TEST_F(SharedMastersTest, TheSizeIsSealed) {
  auto view = *SharedMasters::Open(fd_, "key", kSizes);
  EXPECT_NE(ftruncate(fd_, 0), 0);
  EXPECT_NE(ftruncate(fd_, 1 << 20), 0);
}

TEST_F(SharedMastersTest, OtherWeightsAndOtherLayoutsAreRefused) {
  auto view = *SharedMasters::Open(fd_, "key", kSizes);
  EXPECT_EQ(SharedMasters::Open(fd_, "other", kSizes).status().code(),
            absl::StatusCode::kFailedPrecondition);
  std::vector<int64_t> sizes = kSizes;
  std::swap(sizes[0], sizes[2]);  // as many bytes
  EXPECT_EQ(SharedMasters::Open(fd_, "key", sizes).status().code(),
            absl::StatusCode::kFailedPrecondition);
  sizes.pop_back();
  EXPECT_EQ(SharedMasters::Open(fd_, "key", sizes).status().code(),
            absl::StatusCode::kFailedPrecondition);
  const int garbage = memfd_create("garbage", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(write(garbage, "0123456789", 10), 10);
  EXPECT_EQ(SharedMasters::Open(garbage, "key", kSizes).status().code(),
            absl::StatusCode::kDataLoss);
  close(garbage);
}

TEST_F(SharedMastersTest, AChangedByteIsNeverUsed) {
  auto view = *SharedMasters::Open(fd_, "key", kSizes);
  CountingReader reader;
  HostMasters masters = *Masters(view.get(), {0, 1});
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(masters.Fill(i, reader.Function()).ok());
  // Somebody writes to the file behind everybody's back: the second byte of block 1.
  const off_t offset = static_cast<off_t>(PageSize() + kSizes[0] + 1);
  ASSERT_EQ(pwrite(fd_, "x", 1, offset), 1);

  auto other_view = *SharedMasters::Open(fd_, "key", kSizes);
  HostMasters others = *Masters(other_view.get(), {0, 1});
  CountingReader second;
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(others.Fill(i, second.Function()).ok());
  EXPECT_EQ(second.reads, 1);
  ASSERT_EQ(others.notes().size(), 1u);
  EXPECT_THAT(others.notes()[0], HasSubstr("block 1"));
  EXPECT_EQ(others.buffer(1).data[1], std::byte{2});
  EXPECT_EQ(others.shared_bytes(), kSizes[0]);
}

TEST_F(SharedMastersTest, AFailedReadLeavesTheBlockForTheNext) {
  auto view = *SharedMasters::Open(fd_, "key", kSizes);
  HostMasters masters = *Masters(view.get(), {0});
  const BlockReader failing = [](int, absl::Span<std::byte>) {
    return absl::DataLossError("the file is cut short");
  };
  EXPECT_EQ(masters.Fill(0, failing).code(), absl::StatusCode::kDataLoss);
  CountingReader reader;
  ASSERT_TRUE(masters.Fill(0, reader.Function()).ok());
  EXPECT_EQ(reader.reads, 1);
}

// Runs `body` in a child process and returns its id.
template <typename Body>
pid_t InChild(const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  return child;
}

TEST_F(SharedMastersTest, TheClaimOfAProcessThatDiedIsTakenOver) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = InChild([&] {
    auto view = *SharedMasters::Open(fd_, "key", kSizes);
    HostMasters masters = *Masters(view.get(), {0});
    (void)masters.Fill(0, [&](int, absl::Span<std::byte> destination) {
      destination[0] = std::byte{99};  // half done
      (void)!write(pipe_ends[1], "x", 1);
      while (true) pause();
      return absl::OkStatus();
    });
  });
  char started = 0;
  ASSERT_EQ(read(pipe_ends[0], &started, 1), 1);
  auto view = *SharedMasters::Open(fd_, "key", kSizes, {.patience = absl::Milliseconds(20)});
  // While it lives, its claim holds: memory of our own is used.
  CountingReader reader;
  HostMasters meanwhile = *Masters(view.get(), {0});
  ASSERT_TRUE(meanwhile.Fill(0, reader.Function()).ok());
  EXPECT_EQ(meanwhile.shared_bytes(), 0);
  EXPECT_EQ(meanwhile.buffer(0).data[0], std::byte{1});

  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  HostMasters masters = *Masters(view.get(), {0});
  ASSERT_TRUE(masters.Fill(0, reader.Function()).ok());
  EXPECT_EQ(masters.shared_bytes(), kSizes[0]);
  EXPECT_EQ(masters.buffer(0).data[0], std::byte{1});
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

// Two processes with 64 MiB of masters each: together they take them once.
TEST(SharedMastersMemoryTest, ASecondProcessAddsLessThanTwoPercent) {
  const std::vector<int64_t> sizes(8, 8 * base::kMiB);
  const int fd = *base::CreateMasterFile("key");
  int ready[2], stop[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(stop), 0);
  struct Report {
    int reads = 0;
    int64_t private_bytes = 0;  // that loading added
  };
  const auto private_bytes = [] {
    return base::ReadProcBytes("/proc/self/status", "RssAnon").value_or(0);
  };
  const auto job = [&] {
    auto device = *HostDevice::Create({});
    auto view = *SharedMasters::Open(fd, "key", sizes);
    std::vector<MasterSpec> specs;
    for (int i = 0; i < 8; ++i) {
      specs.push_back({.bytes = sizes[static_cast<size_t>(i)], .block = i});
    }
    const int64_t before = private_bytes();
    HostMasters masters =
        *HostMasters::Create(device.get(), specs, PinPolicy::kNever, {.shared = view.get()});
    CountingReader reader;
    for (int i = 0; i < 8; ++i) (void)masters.Fill(i, reader.Function());
    const Report report{reader.reads, private_bytes() - before};
    (void)!write(ready[1], &report, sizeof(report));
    char byte = 0;
    (void)!read(stop[0], &byte, 1);  // until the other end closes
  };
  const auto start = [&] {
    const pid_t child = InChild([&] {
      close(stop[1]);
      job();
    });
    Report report;
    EXPECT_EQ(read(ready[0], &report, sizeof(report)), static_cast<ssize_t>(sizeof(report)));
    return std::pair<pid_t, Report>(child, report);
  };
  const auto [first, first_report] = start();
  EXPECT_EQ(first_report.reads, 8);
  const int64_t one_job = base::MasterFileBytes(fd);
  const auto [second, second_report] = start();
  EXPECT_EQ(second_report.reads, 0);
  EXPECT_EQ(base::MasterFileBytes(fd), one_job);
  const int64_t masters = 64 * base::kMiB;
#ifndef BLOCKSWAP_SANITIZED
  // A sanitizer's shadow of what is read is private memory, too.
  EXPECT_LT(second_report.private_bytes, masters / 50);
#endif
  // Both have all of it mapped, and each is charged for half.
  for (const pid_t pid : {first, second}) {
    const std::string rollup = "/proc/" + std::to_string(pid) + "/smaps_rollup";
    const int64_t resident = *base::ReadProcBytes(rollup, "Rss");
    EXPECT_GE(resident, masters);
    EXPECT_GT(resident - *base::ReadProcBytes(rollup, "Pss"), masters * 4 / 10);
  }
  close(stop[1]);
  for (const pid_t pid : {first, second}) EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
  for (const int end : {ready[0], ready[1], stop[0], fd}) close(end);
}

}  // namespace
}  // namespace blockswap::offload
