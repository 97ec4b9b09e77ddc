// SPDX-License-Identifier: Apache-2.0
#include "worker/sandbox/confinement.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "absl/strings/str_cat.h"

namespace blockswap::worker {
namespace {

namespace fs = std::filesystem;

// A confined process stays confined: each case runs in a child, which answers one line.
std::string InChild(const std::function<std::string()>& body) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    const std::string answer = body();
    const ssize_t written = write(ends[1], answer.data(), answer.size());
    _exit(written == static_cast<ssize_t>(answer.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string answer(4096, '\0');
  size_t size = 0;
  for (ssize_t got; (got = read(ends[0], answer.data() + size, answer.size() - size)) > 0;)
    size += static_cast<size_t>(got);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  answer.resize(size);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? answer : "the child died";
}

std::string Open(const std::string& path, int flags) {
  const int fd = open(path.c_str(), flags | O_CLOEXEC, 0600);
  return fd >= 0 ? "ok" : std::strerror(errno);
}

class ConfinementTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/tmp/blockswap-test-XXXXXX";
    root_ = mkdtemp(pattern.data());
    for (const char* name : {"data", "output", "elsewhere"})
      fs::create_directory(root_ + "/" + name);
    for (const char* name : {"data/weights", "elsewhere/secret"})
      std::ofstream(root_ + "/" + name) << "text";
    paths_ = SystemPaths();
    paths_.data.push_back(root_ + "/data");
    paths_.output.push_back(root_ + "/output");
  }
  void TearDown() override { fs::remove_all(root_); }

  // What `body` answers in a process that may use data and output of the test alone.
  std::string Confined(const std::function<std::string()>& body) {
    return InChild([this, &body] {
      const auto done = ConfineThisProcess(ConfinementMode::kAuto, paths_);
      return done.ok() ? body() : absl::StrCat("not confined: ", done.status().message());
    });
  }
  bool HasLandlock() const { return LandlockAbi() > 0; }

  std::string root_;
  AllowedPaths paths_;
};

#define SKIP_WITHOUT_LANDLOCK() \
  if (!HasLandlock()) GTEST_SKIP() << "this kernel has no Landlock"

constexpr char kDenied[] = "Permission denied";

TEST_F(ConfinementTest, WritesGoToTheOutputAlone) {
  SKIP_WITHOUT_LANDLOCK();
  const int make = O_WRONLY | O_CREAT;
  EXPECT_EQ(Confined([&] { return Open(root_ + "/output/new", make); }), "ok");
  EXPECT_EQ(Confined([&] { return Open(root_ + "/elsewhere/new", make); }), kDenied);
  EXPECT_EQ(Confined([&] { return Open(root_ + "/data/new", make); }), kDenied);
  EXPECT_EQ(Confined([&] { return Open(root_ + "/data/weights", O_WRONLY); }), kDenied);
  EXPECT_EQ(Confined([&] { return Open("/tmp/blockswap-escape", make); }), kDenied);
  EXPECT_EQ(Confined([&] { return Open("/etc/blockswap-escape", make); }), kDenied);
  EXPECT_FALSE(fs::exists(root_ + "/elsewhere/new"));
}

TEST_F(ConfinementTest, ReadsComeFromDataAndSystemAlone) {
  SKIP_WITHOUT_LANDLOCK();
  EXPECT_EQ(Confined([&] { return Open(root_ + "/data/weights", O_RDONLY); }), "ok");
  EXPECT_EQ(Confined([&] { return Open("/proc/self/maps", O_RDONLY); }), "ok");
  EXPECT_EQ(Confined([&] { return Open("/proc/meminfo", O_RDONLY); }), "ok");
  EXPECT_EQ(Confined([&] { return Open("/dev/null", O_RDWR); }), "ok");
  EXPECT_EQ(Confined([&] { return Open(root_ + "/elsewhere/secret", O_RDONLY); }), kDenied);
}

TEST_F(ConfinementTest, LinksLeadNoFurther) {
  SKIP_WITHOUT_LANDLOCK();
  fs::create_symlink(root_ + "/elsewhere/secret", root_ + "/data/link");
  EXPECT_EQ(Confined([&] { return Open(root_ + "/data/link", O_RDONLY); }), kDenied);
  EXPECT_EQ(Confined([&] { return Open(root_ + "/data/../elsewhere/secret", O_RDONLY); }), kDenied);
  EXPECT_NE(Confined([&] {
              const std::string to = root_ + "/output/hard";
              return link((root_ + "/elsewhere/secret").c_str(), to.c_str()) == 0 ? "ok" : "no";
            }),
            "ok");
}

TEST_F(ConfinementTest, OutputsCanBeReplacedByRename) {
  SKIP_WITHOUT_LANDLOCK();
  EXPECT_EQ(Confined([&] {
              const std::string from = root_ + "/output/.new", to = root_ + "/output/done";
              std::ofstream(from) << "text";
              return rename(from.c_str(), to.c_str()) == 0 && mkdir((to + "-d").c_str(), 0700) == 0
                         ? "ok"
                         : std::strerror(errno);
            }),
            "ok");
}

TEST_F(ConfinementTest, DataIsNotExecuted) {
  SKIP_WITHOUT_LANDLOCK();
  const std::string program = root_ + "/data/true";
  fs::copy_file("/bin/true", program);
  const auto run = [](const std::string& path) {
    const pid_t child = fork();
    if (child == 0) {
      execl(path.c_str(), path.c_str(), static_cast<char*>(nullptr));
      _exit(errno == EACCES ? 77 : 78);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return absl::StrCat(WEXITSTATUS(status));
  };
  EXPECT_EQ(Confined([&] { return run(program); }), "77");
  EXPECT_EQ(Confined([&] { return run("/bin/true"); }), "0");
}

TEST_F(ConfinementTest, NetworkIsClosedWhereTheKernelCan) {
  if (LandlockAbi() < 4) GTEST_SKIP() << "this kernel's Landlock knows no TCP";
  EXPECT_EQ(
      Confined([] {
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(9);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        const auto* to = reinterpret_cast<const sockaddr*>(&address);
        return std::string(connect(fd, to, sizeof(address)) == 0 ? "ok" : std::strerror(errno));
      }),
      kDenied);
}

TEST_F(ConfinementTest, OthersGetNoSignals) {
  if (LandlockAbi() < 6) GTEST_SKIP() << "this kernel's Landlock knows no signals";
  const pid_t other = getpid();
  EXPECT_EQ(
      Confined([other] { return std::string(kill(other, 0) == 0 ? "ok" : std::strerror(errno)); }),
      "Operation not permitted");
}

TEST_F(ConfinementTest, LimitsAndPrivilegesHoldOnEveryKernel) {
  const std::string answer = Confined([] {
    rlimit core{1, 1}, files{}, processes{};
    getrlimit(RLIMIT_CORE, &core);
    getrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_NPROC, &processes);
    return absl::StrCat("privileges ", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), " core ",
                        core.rlim_max, " files ", files.rlim_max <= 65536, " processes ",
                        processes.rlim_max <= 32768);
  });
  EXPECT_EQ(answer, "privileges 1 core 0 files 1 processes 1");
}

TEST_F(ConfinementTest, SaysWhatTheKernelLacks) {
  EXPECT_THAT(Confinement{}.ToText(), ::testing::HasSubstr("this kernel has no Landlock"));
  const std::string answer = InChild([this] {
    const auto done = ConfineThisProcess(ConfinementMode::kRequired, paths_);
    return done.ok() ? done->ToText() : std::string(done.status().message());
  });
  EXPECT_THAT(answer, ::testing::HasSubstr(HasLandlock() ? "Landlock version" : "has no Landlock"));
}

TEST_F(ConfinementTest, ThreadsThatRunAlreadyAreRefused) {
  SKIP_WITHOUT_LANDLOCK();
  const std::string answer = InChild([this] {
    int gate[2];
    if (pipe(gate) != 0) return std::string("no pipe");
    std::thread waiting([&gate] {
      char byte = 0;
      if (read(gate[0], &byte, 1) < 0) return;
    });
    const auto done = ConfineThisProcess(ConfinementMode::kAuto, paths_);
    close(gate[1]);
    waiting.join();
    return std::string(done.status().message());
  });
  EXPECT_THAT(answer, ::testing::HasSubstr("before it starts threads"));
}

TEST_F(ConfinementTest, OffLeavesFilesAlone) {
  EXPECT_EQ(InChild([this] {
              const auto done = ConfineThisProcess(ConfinementMode::kOff, paths_);
              return done.ok() ? Open(root_ + "/elsewhere/new", O_WRONLY | O_CREAT) : "failed";
            }),
            "ok");
}

TEST(ConfinementModeTest, NamesAreThreeAndOthersAreErrors) {
  EXPECT_EQ(*ParseConfinementMode("auto"), ConfinementMode::kAuto);
  EXPECT_EQ(*ParseConfinementMode("required"), ConfinementMode::kRequired);
  EXPECT_EQ(*ParseConfinementMode("off"), ConfinementMode::kOff);
  EXPECT_TRUE(absl::IsInvalidArgument(ParseConfinementMode("on").status()));
}

}  // namespace
}  // namespace blockswap::worker
