// SPDX-License-Identifier: Apache-2.0
#include "worker/train/weights_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "offload/base/byte_size.h"
#include "offload/base/master_file.h"
#include "offload/base/proc_file.h"
#include "offload/base/status_macros.h"
#include "offload/device/host_device.h"
#include "offload/plan/planner.h"
#include "offload/swap/block_swapper.h"
#include "tests/fakes/fake_model.h"
#include "tests/worker/data/temp_directory.h"
#include "worker/config/shared_masters_key.h"

namespace blockswap::worker {
namespace {

using base::kMiB;
using offload::BlockSwapper;
using offload::Direction;
using offload::HostTier;
using offload::PassKind;
using offload::SwapPlan;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kBlocks = 6;
constexpr int64_t kColumns = 1024;

// A checkpoint of equal blocks of one bf16 weight each and one tensor that nobody uses, sparse but
// for the first value of each row.
class Checkpoint {
 public:
  explicit Checkpoint(int64_t block_bytes, int64_t unused_bytes = 0) : block_bytes_(block_bytes) {
    const int64_t rows = block_bytes / (2 * kColumns);
    std::string header = "{";
    for (int b = 0; b < kBlocks; ++b) {
      absl::StrAppend(&header, "\"", Name(b), "\":{\"dtype\":\"BF16\",\"shape\":[", rows, ",",
                      kColumns, "],\"data_offsets\":[", b * block_bytes, ",", (b + 1) * block_bytes,
                      "]},");
    }
    const int64_t end = kBlocks * block_bytes + unused_bytes;
    absl::StrAppend(&header, "\"unused\":{\"dtype\":\"U8\",\"shape\":[", unused_bytes,
                    "],\"data_offsets\":[", kBlocks * block_bytes, ",", end, "]}}");
    while (header.size() % 8 != 0) header.push_back(' ');
    path_ = directory_.Write("w.safetensors", "");
    std::ofstream file(path_, std::ios::binary);
    const uint64_t length = header.size();
    file.write(reinterpret_cast<const char*>(&length), sizeof(length));
    file << header;
    data_ = static_cast<int64_t>(header.size()) + 8;
    for (int b = 0; b < kBlocks; ++b) {
      for (int64_t row = 0; row < rows; row += 64) {
        file.seekp(data_ + b * block_bytes + row * 2 * kColumns);
        file.put(static_cast<char>(b + 1)).put(static_cast<char>(row / 64));
      }
    }
    file.close();
    std::filesystem::resize_file(path_, static_cast<uintmax_t>(data_ + end));
  }

  static std::string Name(int block) { return absl::StrCat("blocks.", block, ".weight"); }

  JobInspection Inspect() const {
    JobInspection job;
    job.config.model.weights_path = path_;
    job.weights = *CheckpointSource::Open(path_, "");
    for (int b = 0; b < kBlocks; ++b) {
      DescribedBlock block;
      block.name = absl::StrCat("blocks.", b);
      block.tensors.push_back({Name(b), {block_bytes_ / (2 * kColumns), kColumns}});
      job.profile.blocks.push_back(PackBlock(block, Dtype::kBFloat16));
      job.model.blocks.push_back(std::move(block));
    }
    return job;
  }
  const std::string& path() const { return path_; }
  int64_t data() const { return data_; }  // where the tensors start
  int64_t block_bytes() const { return block_bytes_; }

 private:
  const TempDirectory directory_;
  const int64_t block_bytes_;
  std::string path_;
  int64_t data_ = 0;
};

std::string KeyOf(const JobInspection& job) {
  return *SharedMastersKey(job.config, *job.weights, job.model);
}

SwapPlan MakePlan(const JobInspection& job, int num_streamed, HostTier tier) {
  offload::FakeModel model;
  model.blocks = job.profile.blocks;
  offload::PlanRequest request = model.request();
  request.constraints.blocks_to_swap = num_streamed;
  request.constraints.pin_policy = offload::PinPolicy::kNever;
  SwapPlan plan = *offload::Plan(request);
  for (offload::BlockPlacement& block : plan.blocks) block.tier = tier;
  return plan;
}

// A swapper that reads through a loader.
struct Load {
  Load(const JobInspection& job, SwapPlan plan, LoadOptions options)
      : device(*offload::HostDevice::Create({})), loader(&job, std::move(options)) {
    loader.Prepare(plan);
    auto created = BlockSwapper::Create(device.get(), std::move(plan), job.profile.blocks,
                                        loader.reader(), {.shared_masters = loader.shared()});
    EXPECT_TRUE(created.ok()) << created.status();
    if (created.ok()) swapper = *std::move(created);
    if (created.ok()) loader.Finish(swapper->stats().pinned_bytes);
  }
  // First and 64th row of every block, forward then backward.
  absl::Status Walk() {
    BLOCKSWAP_RETURN_IF_ERROR(swapper->BeginPass(PassKind::kTraining));
    for (int visit = 0; visit < 2 * kBlocks; ++visit) {
      const int block = visit < kBlocks ? visit : 2 * kBlocks - 1 - visit;
      auto lease =
          swapper->Acquire(block, visit < kBlocks ? Direction::kForward : Direction::kBackward);
      BLOCKSWAP_RETURN_IF_ERROR(lease.status());
      const offload::DeviceSpan weight = *lease->Get(0);
      EXPECT_EQ(static_cast<int>(weight.data[0]), block + 1);
      EXPECT_EQ(static_cast<int>(weight.data[64 * 2 * kColumns + 1]), 1);
    }
    return absl::OkStatus();
  }

  std::unique_ptr<offload::HostDevice> device;
  WeightsLoader loader;
  std::unique_ptr<BlockSwapper> swapper;
};

TEST(WeightsLoaderTest, ProgressRunsToTheEndAndUnusedTensorsAreNeverRead) {
  const Checkpoint checkpoint(kMiB, 64 * kMiB);
  const JobInspection job = checkpoint.Inspect();
  const int64_t header_bytes = job.weights->bytes_read();
  std::vector<int64_t> done;
  Load load(job, MakePlan(job, 4, HostTier::kPageable), {{}, [&](int64_t bytes, int64_t total) {
                                                           EXPECT_EQ(total, kBlocks * kMiB);
                                                           done.push_back(bytes / kMiB);
                                                         }});
  EXPECT_THAT(done, ElementsAre(1, 2, 3, 4, 5, 6, 6));
  EXPECT_EQ(job.weights->bytes_read() - header_bytes, kBlocks * kMiB);
  EXPECT_TRUE(load.Walk().ok());
}

TEST(WeightsLoaderTest, ASecondJobOnTheSameBaseReadsOnlyItsResidents) {
  const Checkpoint checkpoint(kMiB);
  const JobInspection first_job = checkpoint.Inspect(), second_job = checkpoint.Inspect();
  const int fd = *base::CreateMasterFile(KeyOf(first_job));
  Load first(first_job, MakePlan(first_job, 5, HostTier::kPageable), {{fd}});
  const int64_t taken = base::MasterFileBytes(fd);
  const int64_t header_bytes = second_job.weights->bytes_read();
  Load second(second_job, MakePlan(second_job, 5, HostTier::kPageable), {{fd}});
  EXPECT_EQ(second_job.weights->bytes_read() - header_bytes, kMiB);  // the resident block
  EXPECT_EQ(base::MasterFileBytes(fd), taken);
  EXPECT_THAT(second.loader.TakeNotes(), ::testing::Contains(HasSubstr("5.0 MiB found in memory")));
  EXPECT_TRUE(first.Walk().ok());
  EXPECT_TRUE(second.Walk().ok());
  first.swapper.reset();  // a job that ends takes nothing along
  EXPECT_TRUE(second.Walk().ok());
  close(fd);
}

// F071: the base changes between two jobs.
TEST(WeightsLoaderTest, AChangedBaseGetsMemoryOfItsOwn) {
  const Checkpoint checkpoint(kMiB);
  const JobInspection before = checkpoint.Inspect();
  const std::string key = KeyOf(before);
  const int fd = *base::CreateMasterFile(key);
  Load first(before, MakePlan(before, 5, HostTier::kPageable), {{fd}});
  std::filesystem::last_write_time(
      checkpoint.path(), std::filesystem::file_time_type::clock::now() + std::chrono::seconds(5));
  const JobInspection after = checkpoint.Inspect();
  EXPECT_NE(KeyOf(after), key);
  Load second(after, MakePlan(after, 5, HostTier::kPageable), {{fd}});
  EXPECT_EQ(second.loader.shared(), nullptr);
  EXPECT_THAT(second.loader.TakeNotes(), ElementsAre(HasSubstr("not shared with other jobs")));
  EXPECT_TRUE(second.Walk().ok());
  close(fd);
}

// The server makes a file for each way in which a job may settle what it left open.
TEST(WeightsLoaderTest, OfTheFilesItIsGivenAJobTakesTheOneForWhatItSettled) {
  const Checkpoint checkpoint(kMiB);
  const JobInspection job = checkpoint.Inspect();
  JobInspection other = checkpoint.Inspect();
  other.model.blocks[0].tensors[0].on_host = true;
  const int wrong = *base::CreateMasterFile(KeyOf(other)),
            right = *base::CreateMasterFile(KeyOf(job));
  const int64_t empty = base::MasterFileBytes(wrong);
  Load load(job, MakePlan(job, 5, HostTier::kPageable), {{wrong, right}});
  ASSERT_NE(load.loader.shared(), nullptr);
  EXPECT_EQ(base::MasterFileBytes(wrong), empty);
  EXPECT_GE(base::MasterFileBytes(right), 5 * kMiB);
  EXPECT_EQ(base::ReadyMasterBlocks(right).size(), static_cast<size_t>(kBlocks));
  EXPECT_TRUE(load.Walk().ok());
  close(wrong);
  close(right);
}

TEST(WeightsLoaderTest, TheFileTierTakesHostMemoryForTheRingAlone) {
  const Checkpoint checkpoint(kMiB);
  const JobInspection job = checkpoint.Inspect();
  Load load(job, MakePlan(job, 5, HostTier::kFile), {});
  EXPECT_EQ(load.swapper->stats().host_master_bytes, 2 * kMiB);  // staging of a ring of two
  for (int step = 0; step < 3; ++step) EXPECT_TRUE(load.Walk().ok());
  EXPECT_THAT(load.loader.TakeNotes(),
              ElementsAre(AllOf(HasSubstr("file tier"), HasSubstr("measured"))));
}

// F114: the file is cut while the job trains from it.
TEST(WeightsLoaderTest, AFileCutWhileInUseEndsTheJobWithItsName) {
  const Checkpoint checkpoint(kMiB);
  const JobInspection job = checkpoint.Inspect();
  Load load(job, MakePlan(job, 5, HostTier::kFile), {});
  ASSERT_TRUE(load.Walk().ok());
  std::filesystem::resize_file(checkpoint.path(), static_cast<uintmax_t>(checkpoint.data() + 100));
  const absl::Status cut = load.Walk();
  EXPECT_EQ(cut.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(cut.message()), HasSubstr(checkpoint.path()));
}

// Peak memory of a process that loads 6 blocks of 32 MiB.
TEST(WeightsLoaderTest, LoadingTakesTheMastersAndOneBlock) {
  const Checkpoint checkpoint(32 * kMiB, 256 * kMiB);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const JobInspection job = checkpoint.Inspect();
    const SwapPlan plan = MakePlan(job, 5, HostTier::kPageable);
    const int64_t before = base::ReadProcBytes("/proc/self/status", "VmRSS").value_or(0);
    Load load(job, plan, {});
    (void)load.swapper->Drain();
    const int64_t taken = base::ReadProcBytes("/proc/self/status", "VmHWM").value_or(0) - before;
    (void)!write(ends[1], &taken, sizeof(taken));
    _exit(0);
  }
  int64_t taken = 0;
  ASSERT_EQ(read(ends[0], &taken, sizeof(taken)), static_cast<ssize_t>(sizeof(taken)));
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  // Masters, the resident block and two slots, which are this device's memory; one block more.
  EXPECT_LT(taken, (5 + 1 + 2 + 1) * 32 * kMiB);
  EXPECT_GT(taken, (5 + 1 + 2) * 32 * kMiB - kMiB);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace blockswap::worker
