// SPDX-License-Identifier: Apache-2.0
// Clients as bytes: what one real client said is said again by as many sockets as a test wants, and
// these vanish, stall or answer nothing, as the test wants.
#ifndef BLOCKSWAP_TESTS_FAULTS_WIRE_CLIENT_H_
#define BLOCKSWAP_TESTS_FAULTS_WIRE_CLIENT_H_

#include <grpc/compression.h>
#include <grpcpp/channel.h>
#include <grpcpp/support/status.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "blockswap/v1/training.pb.h"
#include "server/base/unique_fd.h"

namespace blockswap::server {

// Stands between one client and the server's socket and keeps what the client sends.
// Owns: a thread. The channel and its stubs must be gone before it.
class WireRecorder final {
 public:
  WireRecorder(const std::string& path, const std::string& server_socket);
  ~WireRecorder();
  std::shared_ptr<grpc::Channel> channel() const;
  std::string bytes() const;  // so far

 private:
  void Relay(const std::string& server_socket);

  const std::string path_;
  UniqueFd listener_;
  mutable std::mutex mutex_;
  std::string bytes_;
  std::thread thread_;
};

// From the connection's first byte to the moment when the watch's snapshot was read.
// `directory` takes a socket.
std::string RecordWatch(const std::string& directory, const std::string& server_socket,
                        const v1::WatchJobsRequest& request, const std::string& token = "");

UniqueFd ConnectTo(const std::string& socket_path);
// False when the other side does not take it all.
bool SendAll(const UniqueFd& socket, const std::string& bytes);
// Reads whole HTTP/2 frames up to the first that carries data of a call; false at the connection's
// end or after half a minute.
bool ReadToFirstData(const UniqueFd& socket);
// Reads and answers nothing until the other side closes; false after half a minute.
bool ReadToEnd(const UniqueFd& socket);

// Takes what comes on the sockets and answers nothing: the connection lives, its streams get no new
// room to write into. Owns: a thread. The sockets must outlive it.
class SilentReader final {
 public:
  explicit SilentReader(const std::vector<UniqueFd>& sockets);
  ~SilentReader();

 private:
  std::vector<int> sockets_;
  UniqueFd stop_;
  std::thread thread_;
};

// A unary call of `method` ("/package.Service/Method") with these very bytes, compressed as
// `algorithm` says.
grpc::Status CallWithBytes(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                           const std::string& bytes, std::string* answer = nullptr,
                           grpc_compression_algorithm algorithm = GRPC_COMPRESS_NONE);
// The standard health service says SERVING.
bool IsServing(const std::shared_ptr<grpc::Channel>& channel);
std::shared_ptr<grpc::Channel> ChannelTo(const std::string& socket_path);

struct ProcessUse {
  int64_t descriptors = 0, threads = 0, resident_bytes = 0, peak_bytes = 0;
};
ProcessUse UseOf(pid_t pid);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_TESTS_FAULTS_WIRE_CLIENT_H_
