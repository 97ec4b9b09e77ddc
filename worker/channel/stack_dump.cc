// SPDX-License-Identifier: Apache-2.0
// Everything here but InstallStackDump runs in a signal handler: system calls, no allocation.
#include "worker/channel/stack_dump.h"

#include <dirent.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace blockswap::worker {
namespace {

constexpr int kMaxFrames = 64;

// One thread prints at a time. Taken over after a second: a thread may be stuck while it prints.
std::atomic<bool> printing{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void Put(const char* text) {
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
}

void PutNumber(long number) {
  std::array<char, 24> digits{};
  size_t begin = digits.size() - 1;
  do {
    digits[--begin] = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number > 0 && begin > 0);
  Put(digits.data() + begin);
}

pid_t ThisThread() { return static_cast<pid_t>(syscall(SYS_gettid)); }

void DumpThisThread() {
  constexpr timespec kPause{0, 1000000};
  for (int i = 0; i < 1000 && printing.exchange(true, std::memory_order_acquire); ++i) {
    nanosleep(&kPause, nullptr);
  }
  std::array<char, 16> name{};
  prctl(PR_GET_NAME, name.data());
  Put("stack of thread ");
  PutNumber(ThisThread());
  Put(" (");
  Put(name.data());
  Put("):\n");
  std::array<void*, kMaxFrames> frames;
  backtrace_symbols_fd(frames.data(), backtrace(frames.data(), kMaxFrames), STDERR_FILENO);
  printing.store(false, std::memory_order_release);
}

// As the kernel writes it (getdents64).
struct Entry {
  uint64_t inode;
  int64_t offset;
  uint16_t length;
  uint8_t type;
  char name[1];
};

long ParseNumber(const char* text) {
  long number = 0;
  for (; *text >= '0' && *text <= '9'; ++text) number = number * 10 + (*text - '0');
  return *text == '\0' ? number : 0;
}

// The other threads print when the signal reaches them.
void AskOtherThreads() {
  const int directory = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;
  alignas(Entry) std::array<char, 4096> buffer;
  long got = 0;
  while ((got = syscall(SYS_getdents64, directory, buffer.data(), buffer.size())) > 0) {
    for (long at = 0; at < got;) {
      const char* entry = buffer.data() + at;
      uint16_t length = 0;
      std::memcpy(&length, entry + offsetof(Entry, length), sizeof(length));
      const long thread = ParseNumber(entry + offsetof(Entry, name));
      if (thread > 0 && thread != ThisThread()) syscall(SYS_tgkill, getpid(), thread, SIGQUIT);
      at += length;
    }
  }
  close(directory);
}

void OnSignal(int, siginfo_t* info, void*) {
  const int saved = errno;
  // A signal to one thread is one of ours, to the process one from outside.
  if (info->si_code != SI_TKILL) {
    Put("stacks of all threads, as asked by SIGQUIT:\n");
    AskOtherThreads();
  }
  DumpThisThread();
  errno = saved;
}

}  // namespace

void InstallStackDump() {
  // Its first call loads a library, which a handler must not.
  std::array<void*, 1> frame;
  backtrace(frame.data(), 1);
  struct sigaction action;
  std::memset(&action, 0, sizeof(action));
  action.sa_sigaction = OnSignal;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  sigaction(SIGQUIT, &action, nullptr);
}

}  // namespace blockswap::worker
