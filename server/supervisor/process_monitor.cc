// SPDX-License-Identifier: Apache-2.0
#include "server/supervisor/process_monitor.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/base/thread_name.h"

namespace blockswap::server {
namespace {

// A descendant that left the group may hold the pipe open for ever; its output is not waited for.
constexpr std::chrono::milliseconds kOutputPatience{500};

absl::Status Errno(const char* what) {
  return absl::InternalError(
      absl::StrCat("cannot watch workers: ", what, ": ", std::strerror(errno)));
}

}  // namespace

ChildProcess::ChildProcess(AttemptKey key, pid_t pid, UniqueFd pidfd, UniqueFd output,
                           AttemptLogWriter log, AttemptObserver& observer,
                           std::unique_ptr<WorkerContainment> containment, Origin origin)
    : key_(std::move(key)),
      pid_(pid),
      pidfd_(std::move(pidfd)),
      output_(std::move(output)),
      log_(std::move(log)),
      observer_(observer),
      containment_(std::move(containment)),
      origin_(origin) {}

void ChildProcess::Signal(int signal) {
  base::MutexLock lock(mutex_);
  if (reaped_) return;
  // Somebody else reaps an adopted process, at any time: the descriptor says whether it still is.
  if (origin_ == Origin::kAdopted &&
      ::syscall(SYS_pidfd_send_signal, pidfd_.get(), 0, nullptr, 0) != 0) {
    return;
  }
  if (signal == SIGKILL) killed_by_us_ = true;
  ::kill(-pid_, signal);
}

bool ChildProcess::CopyOutput() {
  std::array<char, 65536> buffer;
  while (true) {
    const ssize_t got = ::read(output_.get(), buffer.data(), buffer.size());
    if (got > 0) {
      log_.Append(buffer.data(), static_cast<size_t>(got));
      lines_.Count({buffer.data(), static_cast<size_t>(got)});
      continue;
    }
    if (got == 0) {
      lines_.Finish();
      return false;
    }
    if (errno != EINTR) return errno == EAGAIN;
  }
}

void ChildProcess::Reap() {
  {
    // What the worker left running goes with it; its pid names the group until it is reaped, and as
    // long as the group has a member.
    base::MutexLock lock(mutex_);
    ::kill(-pid_, SIGKILL);
  }
  const int strays = containment_->KillRest();
  if (strays > 0) {
    LogWarning("job {}: {} process(es) that worker {} had started and left were ended", key_.job_id,
               strays, pid_);
  }
  base::MutexLock lock(mutex_);
  siginfo_t state{};
  if (origin_ == Origin::kAdopted) {
    exit_.known = false;
  } else if (::waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &state, WEXITED) == 0) {
    if (state.si_code == CLD_EXITED) {
      exit_.exit_code = state.si_status;
    } else {
      exit_.signal = state.si_status;
    }
  }
  // By SIGKILL, or, of an adopted one, in a way nobody saw.
  if ((exit_.signal == SIGKILL || !exit_.known) && !killed_by_us_) {
    exit_.out_of_memory = containment_->OutOfMemory().value_or("");
  }
  reaped_ = true;
}

absl::StatusOr<std::unique_ptr<ProcessMonitor>> ProcessMonitor::Create() {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll.valid() || !wake.valid()) return Errno("epoll");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = wake.get();
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) return Errno("epoll_ctl");
  return std::unique_ptr<ProcessMonitor>(new ProcessMonitor(std::move(epoll), std::move(wake)));
}

ProcessMonitor::ProcessMonitor(UniqueFd epoll, UniqueFd wake)
    : epoll_(std::move(epoll)), wake_(std::move(wake)) {
  thread_ = std::thread([this] { Run(); });
}

ProcessMonitor::~ProcessMonitor() {
  {
    base::MutexLock lock(mutex_);
    stopping_ = true;
  }
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
}

void ProcessMonitor::Watch(std::shared_ptr<ChildProcess> child) {
  {
    base::MutexLock lock(mutex_);
    new_.push_back(std::move(child));
  }
  ::eventfd_write(wake_.get(), 1);
}

void ProcessMonitor::AddNew() {
  std::vector<std::shared_ptr<ChildProcess>> added;
  {
    base::MutexLock lock(mutex_);
    added.swap(new_);
  }
  for (const auto& child : added) {
    for (const int fd : {child->pidfd_.get(), child->output_.get()}) {
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.fd = fd;
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
      by_fd_[fd] = child;
    }
  }
}

void ProcessMonitor::OnReadable(int fd) {
  const auto found = by_fd_.find(fd);
  if (found == by_fd_.end()) return;
  const std::shared_ptr<ChildProcess> child = found->second;
  const bool is_output = fd == child->output_.get();
  if (is_output && child->CopyOutput()) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  by_fd_.erase(found);
  if (is_output) {
    child->output_.Reset();
    return;
  }
  child->Reap();
  child->exited_ = true;
  child->give_up_on_output_ = SteadyNow() + kOutputPatience;
  draining_.push_back(child);
}

void ProcessMonitor::FinishDrained(SteadyTime now) {
  const auto is_done = [this, now](const std::shared_ptr<ChildProcess>& child) {
    if (child->output_.valid() && now < child->give_up_on_output_) return false;
    if (child->output_.valid()) {
      child->CopyOutput();
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, child->output_.get(), nullptr);
      by_fd_.erase(child->output_.get());
      child->output_.Reset();
    }
    child->log_.Flush();
    child->observer_.OnExit(child->key_, child->exit_);
    return true;
  };
  draining_.erase(std::remove_if(draining_.begin(), draining_.end(), is_done), draining_.end());
}

void ProcessMonitor::Run() {
  NameThisThread("supervisor");
  std::array<epoll_event, 32> events;
  while (true) {
    const int timeout_ms = draining_.empty() ? -1 : 20;
    const int count =
        ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
    for (int i = 0; i < count; ++i) {
      const int fd = events[static_cast<size_t>(i)].data.fd;
      if (fd == wake_.get()) {
        eventfd_t value = 0;
        ::eventfd_read(wake_.get(), &value);
        AddNew();
      } else {
        OnReadable(fd);
      }
    }
    FinishDrained(SteadyNow());
    base::MutexLock lock(mutex_);
    if (stopping_) return;
  }
}

}  // namespace blockswap::server
