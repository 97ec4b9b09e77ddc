// SPDX-License-Identifier: Apache-2.0
// F014: a checkpoint writer killed before any one of its system calls that change the disk leaves
// the final name either absent or complete, and the next start cleans up.
//
// The program's own write, fsync, rename and so on stand in front of the C library's: they count,
// and the k-th raises SIGKILL.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/worker/data/temp_directory.h"
#include "worker/io/atomic_file.h"
#include "worker/io/checkpoint_directory.h"
#include "worker/io/safetensors.h"

namespace {

// -1: off. Plain atomics: the calls below may run in any state of the program.
std::atomic<int> calls_until_fault{-1};
std::atomic<int> fault_errno{0};  // 0: SIGKILL
std::atomic<bool> fault_happened{false};
// What reached the disk in which order, when on: "fsync NAME", "rename NAME".
std::atomic<bool> traces{false};
std::vector<std::string>& Trace() {
  static auto* const trace = new std::vector<std::string>;
  return *trace;
}

std::string NameOf(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

void Note(const char* what, const std::string& path) {
  if (traces.load()) Trace().push_back(absl::StrCat(what, " ", NameOf(path)));
}

// True when this call must fail with errno set.
bool Count() {
  const int left = calls_until_fault.load();
  if (left < 0) return false;
  calls_until_fault.store(left - 1);
  if (left > 0) return false;
  fault_happened.store(true);
  if (fault_errno.load() == 0) raise(SIGKILL);
  errno = fault_errno.load();
  return true;
}

template <typename... Arguments>
long Call(long number, Arguments... arguments) {
  return Count() ? -1 : syscall(number, arguments...);
}

}  // namespace

extern "C" {
ssize_t write(int fd, const void* bytes, size_t size) { return Call(SYS_write, fd, bytes, size); }
int fsync(int fd) {
  if (traces.load())
    Note("fsync", std::filesystem::read_symlink(absl::StrCat("/proc/self/fd/", fd)));
  return static_cast<int>(Call(SYS_fsync, fd));
}
int rename(const char* from, const char* to) noexcept {
  Note("rename", to);
  return static_cast<int>(Call(SYS_rename, from, to));
}
int renameat2(int from_fd, const char* from, int to_fd, const char* to, unsigned flags) noexcept {
  return static_cast<int>(Call(SYS_renameat2, from_fd, from, to_fd, to, flags));
}
int mkdir(const char* path, mode_t mode) noexcept {
  return static_cast<int>(Call(SYS_mkdir, path, mode));
}
}

namespace blockswap::worker {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::StartsWith;

constexpr int64_t kOldStep = 10, kNewStep = 20;

std::string ContentOf(int64_t step) {
  return std::string(5000, static_cast<char>('a' + step % 26));
}

absl::StatusOr<CommittedCheckpoint> Commit(const std::string& parent, int64_t step) {
  const std::string content = ContentOf(step);
  return CommitCheckpoint(parent, step, 10'000, {}, [&](const std::string& directory) {
    const auto bytes =
        absl::MakeConstSpan(reinterpret_cast<const std::byte*>(content.data()), content.size());
    return WriteSafetensors(absl::StrCat(directory, "/state.safetensors"),
                            {{"x", StoredType::kU8, {5000}, bytes}}, {});
  });
}

// Runs a save in a child that dies before its k-th call. Returns false when it got through.
bool KillAt(int k, const std::string& parent, int64_t step) {
  const pid_t child = fork();
  if (child == 0) {
    calls_until_fault.store(k);
    _exit(Commit(parent, step).ok() && !fault_happened.load() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

// What must hold after a crash: everything under a final name is complete, and looking for the
// newest removes the rest.
void ExpectConsistent(const TempDirectory& directory, const std::vector<int64_t>& possible) {
  for (const std::string& name : directory.Names()) {
    EXPECT_THAT(name, AnyOf(StartsWith("step-"), StartsWith(".step-")));
    if (name[0] != 's') continue;
    EXPECT_TRUE(VerifyCheckpoint(directory.Path(name)).ok()) << name;
  }
  std::vector<std::string> skipped;
  const auto newest = FindNewestCheckpoint(directory.path(), &skipped);
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_THAT(possible, ::testing::Contains(newest->step));
  EXPECT_TRUE(skipped.empty());
  for (const std::string& name : directory.Names()) EXPECT_THAT(name, StartsWith("step-"));
}

TEST(CheckpointCrashTest, KilledAtEveryCallTheFinalNameIsAbsentOrComplete) {
  int k = 0;
  for (bool killed = true; killed; ++k) {
    const TempDirectory directory;
    ASSERT_TRUE(Commit(directory.path(), kOldStep).ok());
    killed = KillAt(k, directory.path(), kNewStep);
    SCOPED_TRACE(absl::StrCat("killed before call ", k));
    ExpectConsistent(directory, killed ? std::vector<int64_t>{kOldStep, kNewStep}
                                       : std::vector<int64_t>{kNewStep});
  }
  EXPECT_GT(k, 10) << "a save makes more calls than that: were they counted?";
}

TEST(CheckpointCrashTest, KilledWhileReplacingTheSameStepOneOfBothIsThere) {
  for (int k = 0; KillAt(k, TempDirectory().path(), kOldStep); ++k) {
    const TempDirectory directory;
    ASSERT_TRUE(Commit(directory.path(), kOldStep).ok());
    KillAt(k, directory.path(), kOldStep);
    SCOPED_TRACE(absl::StrCat("killed before call ", k));
    ExpectConsistent(directory, {kOldStep});
  }
}

// F017: what a power loss may not reorder: content before its name, manifest after the data, and
// the directory after the rename.
TEST(CheckpointCrashTest, ContentReachesTheDiskBeforeItsName) {
  const TempDirectory directory;
  Trace().clear();
  traces.store(true);
  const auto committed = Commit(directory.path(), kNewStep);
  traces.store(false);
  ASSERT_TRUE(committed.ok());
  const std::vector<std::string>& trace = Trace();
  const auto last = [&](const std::string& start) {
    for (size_t i = trace.size(); i > 0; --i) {
      if (absl::StartsWith(trace[i - 1], start)) return static_cast<int>(i);
    }
    return -1;
  };
  const int data = last("fsync state.safetensors"), manifest = last("fsync .manifest.json.tmp-");
  const int manifest_name = last("rename manifest.json"),
            inside = last("fsync .step-00000020.tmp-");
  const int name = last("rename step-00000020"),
            parent = last(absl::StrCat("fsync ", NameOf(directory.path())));
  EXPECT_GT(data, 0);
  EXPECT_GT(manifest, data);
  EXPECT_GT(manifest_name, manifest);
  EXPECT_GT(inside, manifest_name);
  EXPECT_GT(name, inside);
  EXPECT_GT(parent, name);
}

// F015: a disk that is full, or broken, at any one call: an error, the older checkpoint, and no
// left-over.
TEST(CheckpointCrashTest, AnErrorAtEveryCallLeavesTheOlderCheckpointOnly) {
  for (const int error_number : {ENOSPC, EIO}) {
    bool faulted = true;
    for (int k = 0; faulted; ++k) {
      const TempDirectory directory;
      ASSERT_TRUE(Commit(directory.path(), kOldStep).ok());
      fault_errno.store(error_number);
      fault_happened.store(false);
      calls_until_fault.store(k);
      const auto result = Commit(directory.path(), kNewStep);
      calls_until_fault.store(-1);
      faulted = fault_happened.load();
      SCOPED_TRACE(absl::StrCat("error ", error_number, " at call ", k));
      if (!faulted) {
        EXPECT_TRUE(result.ok());
        break;
      }
      EXPECT_FALSE(result.ok());
      EXPECT_EQ(absl::IsResourceExhausted(result.status()), error_number == ENOSPC)
          << result.status();
      // The very last fsync, of the parent, comes when the new one has its name already.
      EXPECT_THAT(directory.Names(), AnyOf(ElementsAre("step-00000010"),
                                           ElementsAre("step-00000010", "step-00000020")));
      for (const std::string& name : directory.Names()) {
        EXPECT_TRUE(VerifyCheckpoint(directory.Path(name)).ok()) << name;
      }
    }
  }
}

}  // namespace
}  // namespace blockswap::worker
