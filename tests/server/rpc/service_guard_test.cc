// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/service_guard.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/proto_buffer_writer.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "server/auth/permissions.h"
#include "server/base/random_text.h"
#include "server/rpc/guarded_services.h"
#include "tests/server/testing/test_server.h"

namespace blockswap::server {
namespace {

using google::protobuf::MethodDescriptor;

const google::protobuf::ServiceDescriptor& Service(const char* name) {
  return *google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
      absl::StrCat("blockswap.v1.", name));
}

std::vector<const MethodDescriptor*> AllMethods() {
  // Linked in by the stubs that TestServer has.
  v1::GetServerInfoRequest().GetDescriptor();
  std::vector<const MethodDescriptor*> methods;
  for (const char* name : {"TrainingService", "AdminService"}) {
    for (int i = 0; i < Service(name).method_count(); ++i)
      methods.push_back(Service(name).method(i));
  }
  return methods;
}

std::string KeyOf(const MethodDescriptor& method) {
  return absl::StrCat(method.service()->name(), "/", method.name());
}

// Names a job that is not there, where a request can name one: an admitted call then changes
// nothing.
std::string RequestFor(const MethodDescriptor& method) {
  std::unique_ptr<google::protobuf::Message> request(
      google::protobuf::MessageFactory::generated_factory()
          ->GetPrototype(method.input_type())
          ->New());
  for (const char* name : {"name", "parent", "job"}) {
    const auto* field = method.input_type()->FindFieldByName(name);
    if (field == nullptr) continue;
    if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_STRING) {
      request->GetReflection()->SetString(request.get(), field, "jobs/nowhere");
    }
  }
  return request->SerializeAsString();
}

// Any call of any kind, to its end.
grpc::Status Call(const std::shared_ptr<grpc::Channel>& channel, const MethodDescriptor& method,
                  const std::string& token) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  if (!token.empty()) context.AddMetadata("authorization", absl::StrCat("Bearer ", token));
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(
      &context, absl::StrCat("/", method.service()->full_name(), "/", method.name()), &queue);
  const auto next = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  grpc::Slice slice(RequestFor(method));
  const grpc::ByteBuffer request(&slice, 1);
  call->StartCall(nullptr);
  if (next()) {
    call->WriteLast(request, grpc::WriteOptions(), nullptr);
    next();
  }
  grpc::ByteBuffer answer;
  do {
    call->Read(&answer, nullptr);
  } while (next());
  grpc::Status status;
  call->Finish(&status, nullptr);
  next();
  return status;
}

std::string MakeToken(TestServer& server, const std::string& name, const std::string& role,
                      const std::string& tenant = "default") {
  grpc::ClientContext context;
  v1::CreateTokenRequest request;
  request.set_display_name(name);
  request.set_role(role);
  request.set_tenant(tenant);
  v1::CreateTokenResponse response;
  const grpc::Status status = server.admin().CreateToken(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response.secret();
}

// Written a second time on purpose: the least role of every call. A call that is not here fails
// the test.
const std::map<std::string, Role>& Expected() {
  static const auto* expected = [] {
    auto* table = new std::map<std::string, Role>;
    for (const char* name :
         {"GetJob", "ListJobs", "WatchJobs", "StreamJobLogs", "ListJobEvents", "ListAttempts",
          "ListCheckpoints", "GetCheckpoint", "ListMetricPoints", "ListTemplates", "GetTemplate"}) {
      (*table)[absl::StrCat("TrainingService/", name)] = Role::kViewer;
    }
    for (const char* name :
         {"CreateJob", "PlanJob", "UpdateJob", "CancelJob", "SuspendJob", "ResumeJob", "RetryJob",
          "CheckpointJob", "SampleJob", "DeleteJob", "DeleteCheckpoint"}) {
      (*table)[absl::StrCat("TrainingService/", name)] = Role::kSubmitter;
    }
    for (const char* name : {"ListDevices", "GetDevice", "GetServerInfo", "GetQueue"})
      (*table)[absl::StrCat("AdminService/", name)] = Role::kViewer;
    for (const char* name : {"PauseQueue", "ResumeQueue", "GetConfig"})
      (*table)[absl::StrCat("AdminService/", name)] = Role::kOperator;
    for (const char* name :
         {"DrainDevice", "UndrainDevice", "SetLogLevel", "ReloadConfig", "BackUpStore",
          "CheckStore", "CreateToken", "ListTokens", "RevokeToken"}) {
      (*table)[absl::StrCat("AdminService/", name)] = Role::kAdmin;
    }
    return table;
  }();
  return *expected;
}

TEST(PermissionsTest, EveryCallHasARowHereAndInTheTableAndNoneIsLeftOver) {
  std::set<std::string> calls;
  for (const MethodDescriptor* method : AllMethods()) calls.insert(KeyOf(*method));
  std::set<std::string> rows, expected;
  for (const Permission& permission : Permissions()) rows.insert(permission.method);
  for (const auto& [name, role] : Expected()) expected.insert(name);
  EXPECT_EQ(rows, calls) << "server/auth/permissions.cc";
  EXPECT_EQ(expected, calls) << "this test's table";
  EXPECT_EQ(rows.size(), Permissions().size()) << "a call has two rows";
}

TEST(PermissionsTest, EveryRequestThatNamesAJobIsHeldToItsTenant) {
  const std::set<std::string> name_no_job = {"TrainingService/GetTemplate"};
  for (const MethodDescriptor* method : AllMethods()) {
    if (method->service()->name() != "TrainingService") continue;
    bool names = false;
    for (const char* field : {"name", "parent", "job"})
      names = names || method->input_type()->FindFieldByName(field) != nullptr;
    names = names && name_no_job.count(KeyOf(*method)) == 0;
    EXPECT_EQ(FindPermission(KeyOf(*method))->names_job, names) << KeyOf(*method);
  }
}

TEST(PermissionsTest, TheGuardPassesOnEveryCall) {
  std::set<std::string> calls, listed;
  for (const MethodDescriptor* method : AllMethods()) calls.insert(method->name());
#define BLOCKSWAP_LIST(Method, Request, Response) listed.insert(#Method);
  BLOCKSWAP_TRAINING_CALLS(BLOCKSWAP_LIST)
  BLOCKSWAP_TRAINING_STREAMS(BLOCKSWAP_LIST)
  BLOCKSWAP_ADMIN_CALLS(BLOCKSWAP_LIST)
#undef BLOCKSWAP_LIST
  EXPECT_EQ(listed, calls) << "server/rpc/guarded_services.h";
}

TEST(PermissionsTest, CallWithoutARowIsRefusedToAll) {
  Identity admin;
  admin.role = Role::kAdmin;
  EXPECT_TRUE(absl::IsPermissionDenied(CheckPermission("TrainingService/NewCall", admin)));
}

// Every call of both services with every role, over a real connection.
TEST(ServiceGuardTest, EachCallTakesItsRoleAndThoseAbove) {
  const TemporaryDirectory directory;
  TestServer server(directory.path());
  std::map<Role, std::string> tokens;
  for (const Role role : {Role::kViewer, Role::kSubmitter, Role::kOperator, Role::kAdmin})
    tokens[role] = MakeToken(server, RoleName(role), RoleName(role));
  for (const MethodDescriptor* method : AllMethods()) {
    const auto least = Expected().find(KeyOf(*method));
    ASSERT_NE(least, Expected().end()) << KeyOf(*method);
    for (const auto& [role, token] : tokens) {
      const grpc::Status status = Call(server.channel(), *method, token);
      const std::string what =
          absl::StrCat(KeyOf(*method), " as ", RoleName(role), ": ", status.error_message());
      if (role < least->second) {
        EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << what;
        EXPECT_EQ(ErrorReason(status), "ACCESS_DENIED") << what;
      } else {
        EXPECT_NE(ErrorReason(status), "ACCESS_DENIED") << what;
        EXPECT_NE(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << what;
        EXPECT_NE(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << what;
      }
    }
    EXPECT_EQ(ErrorReason(Call(server.channel(), *method, "bst_wrong")), "TOKEN_INVALID")
        << KeyOf(*method);
  }
}

TEST(ServiceGuardTest, RightsAreCheckedBeforeTheRequest) {
  const TemporaryDirectory directory;
  TestServer server(directory.path());
  const std::string viewer = MakeToken(server, "v", "viewer");
  grpc::ClientContext context;
  context.AddMetadata("authorization", absl::StrCat("Bearer ", viewer));
  v1::Job job;
  const grpc::Status status =
      server.training().CreateJob(&context, server.Request("invalid", "{}"), &job);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(ErrorViolations(status).field_violations_size(), 0);
}

TEST(ServiceGuardTest, CallersOnOneConnectionStayApart) {
  const TemporaryDirectory directory;
  TestServer server(directory.path());
  const std::string viewer = MakeToken(server, "v", "viewer");
  const std::string admin = MakeToken(server, "a", "admin");
  const auto& method = *Service("AdminService").FindMethodByName("ListTokens");
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(Call(server.channel(), method, admin).ok());
    EXPECT_EQ(ErrorReason(Call(server.channel(), method, viewer)), "ACCESS_DENIED");
    EXPECT_TRUE(Call(server.channel(), method, "").ok());
  }
}

TEST(ServiceGuardTest, RevokedTokenIsOutAtOnce) {
  const TemporaryDirectory directory;
  TestServer server(directory.path());
  const std::string token = MakeToken(server, "ci", "viewer");
  const auto& method = *Service("TrainingService").FindMethodByName("ListJobs");
  EXPECT_TRUE(Call(server.channel(), method, token).ok());
  grpc::ClientContext context;
  v1::RevokeTokenRequest request;
  request.set_name("ci");
  v1::Token revoked;
  ASSERT_TRUE(server.admin().RevokeToken(&context, request, &revoked).ok());
  EXPECT_TRUE(revoked.has_revoke_time());
  EXPECT_EQ(ErrorReason(Call(server.channel(), method, token)), "TOKEN_INVALID");
}

TEST(ServiceGuardTest, ListOfTokensTellsNoSecret) {
  const TemporaryDirectory directory;
  TestServer server(directory.path());
  const std::string token = MakeToken(server, "ci", "submitter", "vision");
  grpc::ClientContext context;
  v1::ListTokensResponse response;
  ASSERT_TRUE(server.admin().ListTokens(&context, v1::ListTokensRequest(), &response).ok());
  ASSERT_EQ(response.tokens_size(), 1);
  EXPECT_EQ(response.tokens(0).display_name(), "ci");
  EXPECT_EQ(response.tokens(0).tenant(), "vision");
  const std::string text = response.SerializeAsString();
  EXPECT_EQ(text.find(token), std::string::npos);
  EXPECT_EQ(text.find(Sha256(token)), std::string::npos);
}

TEST(ServiceGuardTest, NamesInRequestsLeadToTheirJob) {
  using ::testing::ElementsAre;
  v1::GetJobRequest get;
  EXPECT_THAT(JobIdsIn(get), ElementsAre());
  get.set_name("jobs/a");
  EXPECT_THAT(JobIdsIn(get), ElementsAre("a"));
  get.set_name("a");
  EXPECT_THAT(JobIdsIn(get), ElementsAre("a"));
  get.set_name("x/jobs/a");
  EXPECT_THAT(JobIdsIn(get), ElementsAre("x/jobs/a"));
  v1::GetCheckpointRequest checkpoint;
  checkpoint.set_name("jobs/a/checkpoints/3");
  EXPECT_THAT(JobIdsIn(checkpoint), ElementsAre("a"));
  v1::ListAttemptsRequest attempts;
  attempts.set_parent("jobs/b");
  EXPECT_THAT(JobIdsIn(attempts), ElementsAre("b"));
  v1::WatchJobsRequest watch;
  watch.set_job("jobs/c");
  EXPECT_THAT(JobIdsIn(watch), ElementsAre("c"));
  v1::UpdateJobRequest update;
  update.mutable_job()->set_name("jobs/d");
  EXPECT_THAT(JobIdsIn(update), ElementsAre("d"));
  v1::RetryJobRequest retry;
  retry.set_name("jobs/e");
  retry.set_from_checkpoint("latest");
  EXPECT_THAT(JobIdsIn(retry), ElementsAre("e"));
  retry.set_from_checkpoint("jobs/f/checkpoints/1");
  EXPECT_THAT(JobIdsIn(retry), ElementsAre("e", "f"));
}

}  // namespace
}  // namespace blockswap::server
