// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/wire_client.h"

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "blockswap/v1/training.grpc.pb.h"

namespace blockswap::server {
namespace {

constexpr int kPatienceMillis = 30000;
constexpr size_t kFrameHeader = 9;
constexpr char kDataFrame = 0;

UniqueFd UnixSocket(const std::string& path, int (*use)(int, const sockaddr*, socklen_t)) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  sockaddr_storage generic = {};
  std::memcpy(&generic, &address, sizeof(address));
  const void* plain = &generic;
  if (use(socket.get(), static_cast<const sockaddr*>(plain), sizeof(address)) != 0) socket.Reset();
  return socket;
}

// Nothing at the end of the connection, or when nothing came in time.
std::string Receive(const UniqueFd& socket, int patience_millis) {
  pollfd wait = {socket.get(), POLLIN, 0};
  if (::poll(&wait, 1, patience_millis) != 1) return "";
  std::string chunk(64 << 10, '\0');
  const ssize_t got = ::recv(socket.get(), chunk.data(), chunk.size(), 0);
  chunk.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return chunk;
}

}  // namespace

WireRecorder::WireRecorder(const std::string& path, const std::string& server_socket)
    : path_(path), listener_(UnixSocket(path, ::bind)) {
  EXPECT_TRUE(listener_.valid()) << path;
  EXPECT_EQ(::listen(listener_.get(), 1), 0);
  thread_ = std::thread([this, server_socket] { Relay(server_socket); });
}

WireRecorder::~WireRecorder() {
  ::shutdown(listener_.get(), SHUT_RDWR);
  thread_.join();
  ::unlink(path_.c_str());
}

void WireRecorder::Relay(const std::string& server_socket) {
  const UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const UniqueFd server = ConnectTo(server_socket);
  if (!client.valid() || !server.valid()) return;
  while (true) {
    pollfd waits[] = {{client.get(), POLLIN, 0}, {server.get(), POLLIN, 0}};
    if (::poll(waits, 2, -1) < 0) return;
    const bool from_client = waits[0].revents != 0;
    const std::string chunk = Receive(from_client ? client : server, /*patience_millis=*/0);
    if (chunk.empty()) return;
    if (from_client) {
      const std::lock_guard<std::mutex> lock(mutex_);
      bytes_ += chunk;
    }
    if (!SendAll(from_client ? server : client, chunk)) return;
  }
}

std::string WireRecorder::bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return bytes_;
}

std::shared_ptr<grpc::Channel> WireRecorder::channel() const { return ChannelTo(path_); }

std::string RecordWatch(const std::string& directory, const std::string& server_socket,
                        const v1::WatchJobsRequest& request, const std::string& token) {
  const WireRecorder recorder(absl::StrCat(directory, "/recorder.sock"), server_socket);
  const auto stub = v1::TrainingService::NewStub(recorder.channel());
  grpc::ClientContext context;
  if (!token.empty()) context.AddMetadata("authorization", absl::StrCat("Bearer ", token));
  v1::WatchJobsRequest with_snapshot = request;
  with_snapshot.set_include_snapshot(true);
  const auto stream = stub->WatchJobs(&context, with_snapshot);
  v1::JobEvent event;
  while (stream->Read(&event) && event.type() != v1::JobEvent::TYPE_SNAPSHOT_END) {
  }
  EXPECT_EQ(event.type(), v1::JobEvent::TYPE_SNAPSHOT_END);
  std::string bytes = recorder.bytes();
  context.TryCancel();
  stream->Finish();
  return bytes;
}

UniqueFd ConnectTo(const std::string& socket_path) { return UnixSocket(socket_path, ::connect); }

bool SendAll(const UniqueFd& socket, const std::string& bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t now =
        ::send(socket.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (now <= 0) return false;
    sent += static_cast<size_t>(now);
  }
  return true;
}

bool ReadToFirstData(const UniqueFd& socket) {
  std::string unread;
  while (true) {
    while (unread.size() >= kFrameHeader) {
      const auto byte = [&unread](size_t i) {
        return static_cast<size_t>(static_cast<unsigned char>(unread[i]));
      };
      const size_t whole = kFrameHeader + (byte(0) << 16 | byte(1) << 8 | byte(2));
      if (unread[3] == kDataFrame) return true;
      if (unread.size() < whole) break;
      unread.erase(0, whole);
    }
    const std::string more = Receive(socket, kPatienceMillis);
    if (more.empty()) return false;
    unread += more;
  }
}

bool ReadToEnd(const UniqueFd& socket) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMillis);
  while (std::chrono::steady_clock::now() < deadline) {
    pollfd wait = {socket.get(), POLLIN, 0};
    if (::poll(&wait, 1, kPatienceMillis) == 1 && Receive(socket, 0).empty()) return true;
  }
  return false;
}

SilentReader::SilentReader(const std::vector<UniqueFd>& sockets)
    : stop_(::eventfd(0, EFD_CLOEXEC)) {
  for (const UniqueFd& socket : sockets) sockets_.push_back(socket.get());
  thread_ = std::thread([this] {
    std::vector<pollfd> waits = {{stop_.get(), POLLIN, 0}};
    for (const int socket : sockets_) waits.push_back({socket, POLLIN, 0});
    std::string chunk(64 << 10, '\0');
    while (::poll(waits.data(), waits.size(), -1) > 0 && waits[0].revents == 0) {
      for (pollfd& wait : waits) {
        // A negative descriptor is left out.
        if (wait.revents != 0 && ::recv(wait.fd, chunk.data(), chunk.size(), 0) <= 0) wait.fd = -1;
      }
    }
  });
}

SilentReader::~SilentReader() {
  const uint64_t one = 1;
  EXPECT_EQ(::write(stop_.get(), &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
  thread_.join();
}

grpc::Status CallWithBytes(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                           const std::string& bytes, std::string* answer,
                           grpc_compression_algorithm algorithm) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::milliseconds(kPatienceMillis));
  context.set_compression_algorithm(algorithm);
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  const auto call = stub.PrepareUnaryCall(&context, method, request, &queue);
  call->StartCall();
  grpc::ByteBuffer reply;
  grpc::Status status;
  call->Finish(&reply, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  if (answer != nullptr && status.ok()) {
    std::vector<grpc::Slice> slices;
    reply.Dump(&slices).ok();
    for (const grpc::Slice& part : slices) {
      answer->append(part.begin(), part.end());
    }
  }
  return status;
}

bool IsServing(const std::shared_ptr<grpc::Channel>& channel) {
  std::string answer;
  // HealthCheckResponse{status: SERVING}: field 1, a varint, is 1.
  return CallWithBytes(channel, "/grpc.health.v1.Health/Check", "", &answer).ok() &&
         answer == "\x08\x01";
}

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& socket_path) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxSendMessageSize(-1);
  return grpc::CreateCustomChannel(absl::StrCat("unix:", socket_path),
                                   grpc::experimental::LocalCredentials(UDS), arguments);
}

ProcessUse UseOf(pid_t pid) {
  const std::string process = absl::StrCat("/proc/", pid);
  ProcessUse use;
  for (const auto& entry : std::filesystem::directory_iterator(process + "/fd")) {
    static_cast<void>(entry);
    ++use.descriptors;
  }
  std::ifstream status(process + "/status");
  std::string key;
  while (status >> key) {
    int64_t value = 0;
    if (key == "Threads:" && status >> value) use.threads = value;
    if (key == "VmRSS:" && status >> value) use.resident_bytes = value << 10;
    if (key == "VmHWM:" && status >> value) use.peak_bytes = value << 10;
    std::getline(status, key);
  }
  EXPECT_GT(use.resident_bytes, 0);
  return use;
}

}  // namespace blockswap::server
