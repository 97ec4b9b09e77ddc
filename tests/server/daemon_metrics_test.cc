// SPDX-License-Identifier: Apache-2.0
// What a whole daemon tells of its devices, its callers and itself: fake GPUs, real HTTP.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/fakes/fake_nvml_control.h"
#include "tests/server/testing/metric_text.h"
#include "tests/server/testing/metrics_page.h"
#include "tests/server/testing/test_certificates.h"
#include "tests/server/testing/test_server.h"

namespace blockswap::server {
namespace {

using std::chrono::steady_clock;
using testing::FakeNvmlControl;
using ::testing::HasSubstr;

// Until `done` agrees; false when it has not within half a minute.
bool Await(const std::function<bool()>& done) {
  const auto deadline = steady_clock::now() + std::chrono::seconds(30);
  while (!done()) {
    if (steady_clock::now() > deadline) return false;
    ::poll(nullptr, 0, 2);
  }
  return true;
}

class DaemonMetricsTest : public ::testing::Test {
 protected:
  void TearDown() override {
    server_.reset();  // it reads them
    for (const char* name : {"FAKE_NVML", "FAKE_NVML_CARDS", "FAKE_NVML_MIG"}) ::unsetenv(name);
  }
  static void Say(const char* name, const char* text) { ::setenv(name, text, /*overwrite=*/1); }
  void UseGpus(const char* cards) {
    ASSERT_TRUE(nvml_.is_loaded());
    Say("FAKE_NVML", "4 4 16 16 8000");
    Say("FAKE_NVML_CARDS", cards);
  }
  static void WithGpus(ServerConfig& config) {
    config.http = "127.0.0.1:0";
    config.gpu_library = ::getenv("BLOCKSWAP_FAKE_NVML");
  }
  void Start(const std::function<void(ServerConfig&)>& adjust = WithGpus) {
    server_ = std::make_unique<TestServer>(directory_.path(), adjust);
    port_ = server_->daemon().http_port();
  }
  int StatusOf(const char* path) const { return HttpFetch(port_, path).status; }
  bool AwaitSeries(const std::string& series, double value) const {
    return AwaitMetrics(
        port_, [&](const std::string& text) { return TextValueOf(text, series) == value; });
  }
  DeviceState Device(size_t index) { return server_->daemon().devices().List().at(index); }

  FakeNvmlControl nvml_{::getenv("BLOCKSWAP_FAKE_NVML")};
  TemporaryDirectory directory_;
  std::unique_ptr<TestServer> server_;
  int port_ = 0;
};

// F125: a server whose driver takes its time is alive, says that it is not ready, and has metrics.
TEST_F(DaemonMetricsTest, StartingServerIsAliveButNotReady) {
  UseGpus("1");
  nvml_.Set("hang_start", 1);
  auto starting = std::async(std::launch::async, [this] {
    return std::make_unique<TestServer>(directory_.path(), WithGpus);
  });
  const std::string file = TestConfig(directory_.path()).state_dir + "/http.port";
  EXPECT_TRUE(Await([&] { return static_cast<bool>(std::ifstream(file) >> port_); }));
  EXPECT_EQ(StatusOf("/healthz"), 200);
  EXPECT_EQ(StatusOf("/readyz"), 503);
  EXPECT_EQ(TextValueOf(MetricsPage(port_), "blockswap_ready"), 0);
  EXPECT_FALSE(std::filesystem::exists(TestConfig(directory_.path()).socket));
  nvml_.Set("hang_start", 0);
  server_ = starting.get();
  EXPECT_EQ(StatusOf("/healthz"), 200);
  EXPECT_EQ(StatusOf("/readyz"), 200);
}

// F125: without a device that works no job can run, and no restart of the server would mend it.
TEST_F(DaemonMetricsTest, ServerWhoseGpusAreLostIsAliveButNotReadyUntilOneIsBack) {
  UseGpus("2");
  Start();
  EXPECT_EQ(StatusOf("/readyz"), 200);
  nvml_.Set("lost", 1);
  EXPECT_TRUE(Await([this] { return StatusOf("/readyz") == 503; }));
  EXPECT_EQ(StatusOf("/healthz"), 200);
  // Every device keeps its series.
  EXPECT_TRUE(AwaitSeries(R"(blockswap_device_healthy{gpu="cuda-0",uuid="GPU-card-0"})", 0));
  EXPECT_TRUE(AwaitSeries(R"(blockswap_device_healthy{gpu="cuda-1",uuid="GPU-card-1"})", 0));
  nvml_.Set("lost", 0);
  EXPECT_TRUE(Await([this] { return StatusOf("/readyz") == 200; }));
  EXPECT_TRUE(AwaitSeries(R"(blockswap_device_healthy{gpu="cuda-1",uuid="GPU-card-1"})", 1));
}

// F125: every device has its series, with no job on it too.
TEST_F(DaemonMetricsTest, IdleGpusHaveTheirSeries) {
  UseGpus("2");
  Start();
  for (const char* gpu :
       {R"({gpu="cuda-0",uuid="GPU-card-0"})", R"({gpu="cuda-1",uuid="GPU-card-1"})"}) {
    EXPECT_TRUE(
        AwaitSeries(absl::StrCat("blockswap_gpu_memory_free_bytes", gpu), 8000.0 * (1 << 20)));
    EXPECT_TRUE(AwaitSeries(absl::StrCat("blockswap_gpu_utilization_ratio", gpu), 0));
  }
}

// Rows 6 and 7, from the driver's word to what becomes of the devices.
TEST_F(DaemonMetricsTest, FatalXidDrainsItsCardAndOneOfAProgramIsCountedAlone) {
  UseGpus("2");
  Start();
  nvml_.Set("xid", 31);
  EXPECT_TRUE(AwaitSeries(R"(blockswap_device_xid_errors_total{gpu="cuda-0",xid="31"})", 1));
  nvml_.Set("xid_card", 1);
  nvml_.Set("xid", 79);
  EXPECT_TRUE(Await([this] { return Device(1).health == DeviceHealth::kDrained; }));
  EXPECT_THAT(Device(1).health_reason, HasSubstr("Xid 79"));
  EXPECT_TRUE(Device(1).is_faulty);
  // It came first, so it has been looked at.
  EXPECT_EQ(Device(0).health, DeviceHealth::kHealthy);
  EXPECT_TRUE(AwaitSeries(R"(blockswap_device_xid_errors_total{gpu="cuda-1",xid="79"})", 1));
  EXPECT_TRUE(AwaitSeries(R"(blockswap_device_healthy{gpu="cuda-1",uuid="GPU-card-1"})", 0));
  EXPECT_EQ(StatusOf("/readyz"), 200);
}

// Row 48: a divided GPU is as many devices as it has parts.
TEST_F(DaemonMetricsTest, PartsOfADividedGpuAreDevicesWithMemoryOfTheirOwn) {
  UseGpus("2");
  Say("FAKE_NVML_MIG", "2");
  Start();
  const std::pair<const char*, double> parts[] = {
      {R"({gpu="cuda-0-mig-7",uuid="MIG-00000000-0001"})", 2000},
      {R"({gpu="cuda-0-mig-8",uuid="MIG-00000000-0002"})", 4000},
      {R"({gpu="cuda-1",uuid="GPU-card-1"})", 16000}};
  for (const auto& [labels, mib] : parts) {
    EXPECT_TRUE(
        AwaitSeries(absl::StrCat("blockswap_gpu_memory_total_bytes", labels), mib * (1 << 20)));
    EXPECT_TRUE(AwaitSeries(absl::StrCat("blockswap_device_healthy", labels), 1));
  }
  // Sums over devices count no byte twice; what the parts share is told of the whole.
  const std::string text = MetricsPage(port_);
  const std::string whole = R"({gpu="cuda-0",uuid="GPU-card-0"})";
  EXPECT_EQ(TextValueOf(text, "blockswap_gpu_memory_total_bytes" + whole), kNoSuchSeries);
  EXPECT_EQ(TextValueOf(text, "blockswap_gpu_power_watts" + whole), 0);
  v1::CreateJobRequest request = server_->Request("job", "steps=2 hold_at=2");
  request.mutable_spec()->set_device("MIG-00000000-0002");
  v1::Job job;
  ASSERT_TRUE(server_->Create(request, &job).ok());
  EXPECT_EQ(server_->WaitState(job.name(), v1::JOB_STATE_RUNNING).device(), "devices/cuda-0-mig-8");
  EXPECT_TRUE(AwaitMetrics(port_, [](const std::string& page) {
    return page.find(R"(uuid="MIG-00000000-0002"} 1)") != std::string::npos &&
           page.find(R"(slot="cuda-0-mig-8")") != std::string::npos;
  }));
  LetGo(job);
  EXPECT_EQ(server_->WaitTerminal(job.name()).state(), v1::JOB_STATE_SUCCEEDED);
  // A fault of the card is one of all its parts.
  nvml_.Set("xid", 48);
  EXPECT_TRUE(Await([this] {
    return Device(0).health == DeviceHealth::kDrained && Device(1).health == DeviceHealth::kDrained;
  }));
  EXPECT_EQ(Device(2).health, DeviceHealth::kHealthy);
}

TEST_F(DaemonMetricsTest, RefusedCallersAreCountedByReason) {
  Start([](ServerConfig& config) {
    config.http = "127.0.0.1:0";
    config.http_auth = true;
  });
  const auto call = [this](const std::string& authorization, auto method, const auto& request,
                           auto response) {
    grpc::ClientContext context;
    if (!authorization.empty()) context.AddMetadata("authorization", authorization);
    return (server_->admin().*method)(&context, request, &response);
  };
  using Admin = v1::AdminService::Stub;
  const auto make_token = [this](const char* name, const char* role, const char* tenant) {
    grpc::ClientContext context;
    v1::CreateTokenRequest request;
    request.set_display_name(name);
    request.set_role(role);
    request.set_tenant(tenant);
    v1::CreateTokenResponse response;
    EXPECT_TRUE(server_->admin().CreateToken(&context, request, &response).ok());
    return absl::StrCat("Bearer ", response.secret());
  };
  const std::string viewer = make_token("viewer", "viewer", "vision");
  const std::string reader = make_token("reader", "viewer", "*");
  const auto page = [&] {
    return HttpFetch(port_, "/metrics", "GET", absl::StrCat("Authorization: ", reader, "\r\n"))
        .body;
  };
  const auto count = [](const std::string& text, const char* reason) {
    return TextValueOf(text,
                       absl::StrCat("blockswap_auth_failures_total{reason=\"", reason, "\"}"));
  };
  // The page may be a fifth of a second old.
  const auto await = [&](const char* reason, double value) {
    EXPECT_TRUE(Await([&] { return count(page(), reason) == value; })) << reason;
  };
  const auto fetch = [this](const std::string& authorization) {
    return HttpFetch(port_, "/metrics", "GET", authorization).status;
  };
  // A rate sees the first one only when the series was there before it.
  for (const char* reason :
       {"token_missing", "token_invalid", "token_expired", "certificate", "access_denied"}) {
    EXPECT_EQ(count(page(), reason), 0) << reason;
  }
  // Over gRPC.
  EXPECT_FALSE(call("Bearer bst_wrong", &Admin::ListDevices, v1::ListDevicesRequest(),
                    v1::ListDevicesResponse())
                   .ok());
  EXPECT_FALSE(
      call(viewer, &Admin::ListTokens, v1::ListTokensRequest(), v1::ListTokensResponse()).ok());
  await("token_invalid", 1);
  await("access_denied", 1);
  // Over HTTP: no token at all, a wrong one, one that does not see all tenants.
  EXPECT_EQ(fetch(""), 401);
  EXPECT_EQ(fetch("Authorization: Bearer bst_wrong\r\n"), 401);
  EXPECT_EQ(fetch(absl::StrCat("Authorization: ", viewer, "\r\n")), 401);
  await("token_missing", 1);
  await("token_invalid", 2);
  await("access_denied", 2);
  // Not for who called, and one more to see that it was looked at.
  grpc::ClientContext context;
  v1::GetJobRequest nowhere;
  nowhere.set_name("jobs/nowhere");
  v1::Job job;
  EXPECT_FALSE(server_->training().GetJob(&context, nowhere, &job).ok());
  EXPECT_EQ(fetch("Authorization: Bearer bst_wrong\r\n"), 401);
  await("token_invalid", 3);
  const std::string text = page();
  EXPECT_EQ(count(text, "other"), 0);
  EXPECT_EQ(count(text, "access_denied"), 2);
  EXPECT_EQ(count(text, "token_missing"), 1);
}

TEST_F(DaemonMetricsTest, CertificatesEndIsTold) {
  const TestAuthority authority("servers");
  CertificateRequest asked{"localhost", "DNS:localhost"};
  asked.valid_to_seconds = 7200;
  const PemPair pair = authority.Issue(asked);
  const std::string certificate = directory_.path() + "/tls.crt",
                    key = directory_.path() + "/tls.key";
  WriteTextFile(certificate, pair.certificate, 0644);
  WriteTextFile(key, pair.key, 0600);
  const double before = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  Start([&](ServerConfig& config) {
    config.http = "127.0.0.1:0";
    config.listen = "localhost:0";
    config.tls_certificate = certificate;
    config.tls_key = key;
  });
  const double end =
      TextValueOf(MetricsPage(port_), "blockswap_certificate_expiry_timestamp_seconds");
  EXPECT_NEAR(end, before + 7200, 120);
}

TEST_F(DaemonMetricsTest, WithoutTlsNoCertificateEnds) {
  Start([](ServerConfig& config) { config.http = "127.0.0.1:0"; });
  EXPECT_EQ(TextValueOf(MetricsPage(port_), "blockswap_certificate_expiry_timestamp_seconds"),
            kNoSuchSeries);
}

TEST_F(DaemonMetricsTest, BuildInfoNamesTheLibrariesOfTheBuild) {
  Start([](ServerConfig& config) { config.http = "127.0.0.1:0"; });
  const std::string text = MetricsPage(port_);
  EXPECT_THAT(text,
              HasSubstr(absl::StrCat("torch=\"", ::getenv("BLOCKSWAP_EXPECTED_TORCH"), "\"")));
  EXPECT_THAT(text, HasSubstr(absl::StrCat("cuda=\"", ::getenv("BLOCKSWAP_EXPECTED_CUDA"), "\"")));
}

}  // namespace
}  // namespace blockswap::server
