// SPDX-License-Identifier: Apache-2.0
// A fake_daemon process that a test may kill, and a client of whichever one runs now.
#ifndef BLOCKSWAP_TESTS_SERVER_TESTING_DAEMON_PROCESS_H_
#define BLOCKSWAP_TESTS_SERVER_TESTING_DAEMON_PROCESS_H_

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "blockswap/v1/training.grpc.pb.h"

namespace blockswap::server {

class DaemonProcess final {
 public:
  // `settings` as fake_daemon.cc says; `environment` is added to ours. Returns once it serves, or
  // has ended.
  explicit DaemonProcess(const std::string& directory, std::vector<std::string> settings = {},
                         std::vector<std::string> environment = {});
  ~DaemonProcess() { End(SIGKILL); }
  DaemonProcess(const DaemonProcess&) = delete;
  DaemonProcess& operator=(const DaemonProcess&) = delete;

  bool ready() const { return ready_; }
  pid_t pid() const { return pid_; }
  void Signal(int signal) const;
  // Sends the signal (0: none) and waits for the end: exit code, or -signal.
  int End(int signal);

 private:
  pid_t pid_ = 0;
  bool ready_ = false;
};

// Connects anew, so that a test that replaces the daemon gets the new one.
class DaemonClient final {
 public:
  explicit DaemonClient(const std::string& directory);

  v1::TrainingService::Stub& stub() { return *stub_; }
  grpc::Status TryCreate(const std::string& script, const std::string& request_id, v1::Job* job,
                         const std::string& device = "");
  v1::Job Create(const std::string& script);
  v1::Job Get(const std::string& name);
  v1::Job Cancel(const std::string& name);
  // Follows the job's events until `done` says so, the stream ends or a minute has passed; whether
  // it said so.
  bool WatchUntil(const std::string& name, const std::function<bool(const v1::JobEvent&)>& done);
  v1::Job WaitTerminal(const std::string& name);
  std::vector<v1::JobEvent> Events(const std::string& name);
  std::vector<v1::Attempt> Attempts(const std::string& name);
  std::vector<v1::MetricPoint> Points(const std::string& name);
  std::string Log(const std::string& name, int attempt);

 private:
  std::unique_ptr<v1::TrainingService::Stub> stub_;
};

// Of the fake worker that runs the job now.
pid_t FakeWorkerPid(const v1::Job& job);
// Waits, at most ten seconds, until there is no such process.
bool IsGone(pid_t pid);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_TESTS_SERVER_TESTING_DAEMON_PROCESS_H_
