// SPDX-License-Identifier: Apache-2.0
// Rows 33 and 34: paths and names that lead elsewhere, through CreateJob.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/faults/inspected_daemon.h"

namespace blockswap::server {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using Row33 = InspectedDaemonTest;
using Row34 = InspectedDaemonTest;

// The fields that take paths.
const std::vector<std::pair<std::string, std::function<void(v1::JobSpec&, const std::string&)>>>&
PathFields() {
  static const auto* fields = new std::vector<
      std::pair<std::string, std::function<void(v1::JobSpec&, const std::string&)>>>{
      {"model.weights", [](auto& s, const auto& p) { s.mutable_model()->set_weights(p); }},
      {"model.config", [](auto& s, const auto& p) { s.mutable_model()->set_config(p); }},
      {"network.weights", [](auto& s, const auto& p) { s.mutable_network()->set_weights(p); }},
      {"dataset.config", [](auto& s, const auto& p) { s.mutable_dataset()->set_config(p); }},
      {"sampling.prompts", [](auto& s, const auto& p) { s.mutable_sampling()->set_prompts(p); }}};
  return *fields;
}

TEST_F(Row33, NoSpellingLeavesTheRoots) {
  Write("outside/secret", "top secret");
  for (const char* root : {"models", "datasets"}) {
    ASSERT_EQ(::symlink("../outside/secret", Path(absl::StrCat(root, "/link")).c_str()), 0);
    ASSERT_EQ(::symlink("../outside", Path(absl::StrCat(root, "/dir")).c_str()), 0);
    ASSERT_EQ(::symlink("/proc/self/root", Path(absl::StrCat(root, "/magic")).c_str()), 0);
  }
  for (const auto& [field, set] : PathFields()) {
    for (const std::string& path :
         {std::string("../outside/secret"), Path("outside/secret"), std::string("/etc/passwd"),
          std::string("//etc/passwd"), std::string("./../outside/secret"),
          std::string("dir/../../outside/secret"), std::string("link"), std::string("dir/secret"),
          std::string("magic/etc/passwd"), std::string("d.toml\0/../../etc/passwd", 24),
          std::string("/"), std::string("..")}) {
      const grpc::Status status = CreateWith([&](auto& spec) { set(spec, path); });
      EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << field << " " << path;
      EXPECT_EQ(ErrorReason(status), "PATH_NOT_ALLOWED") << field << " " << path;
      EXPECT_THAT(FieldsOf(status), Contains(field)) << path;
      EXPECT_THAT(status.error_message(), Not(HasSubstr("top secret")));
      // What a link leads to is not told.
      if (path == "link" || path == "dir/secret") {
        EXPECT_THAT(status.error_message(), Not(HasSubstr(directory_.path())));
      }
    }
    // Nobody decodes these: names of files that are not there.
    for (const char* path : {"%2e%2e/outside/secret", "..%2foutside/secret", "\u2025/secret",
                             "\uff0e\uff0e/outside/secret", "..\\outside\\secret"}) {
      const grpc::Status status = CreateWith([&](auto& spec) { set(spec, path); });
      EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << field << " " << path;
    }
  }
  EXPECT_EQ(NumJobs(), 0);
}

// Names become directories, too.
TEST_F(Row33, NamesOfJobsCheckpointsAndTemplatesLeadNowhereElse) {
  Write("outside/evil.yaml", "name: evil\n");
  const auto expect_refused = [](const grpc::Status& status, const std::string& what) {
    EXPECT_THAT(status.error_code(),
                AnyOf(grpc::StatusCode::INVALID_ARGUMENT, grpc::StatusCode::NOT_FOUND))
        << what << " " << status.error_message();
  };
  for (const std::string& name :
       {std::string("../outside"), std::string("/etc"), std::string("a/../../outside"),
        std::string("."), std::string(".."), std::string("a\0b", 3), std::string("%2e%2e"),
        std::string("../../outside/evil")}) {
    v1::Job job;
    v1::CreateJobRequest with_id;
    *with_id.mutable_spec() = good_;
    with_id.set_job_id(name);
    expect_refused(Create(with_id, &job), "job_id " + name);
    v1::CreateJobRequest with_template;
    *with_template.mutable_spec() = good_;
    with_template.set_template_(absl::StrCat("templates/", name));
    expect_refused(Create(with_template, &job), "template " + name);
    expect_refused(CreateWith([&](auto& spec) { spec.set_name(name + "/x"); }), "name " + name);
    expect_refused(CreateWith([&](auto& spec) { spec.mutable_output()->set_name(name + "/x"); }),
                   "output.name " + name);
    grpc::ClientContext get_context, delete_context;
    v1::GetCheckpointRequest get;
    get.set_name(absl::StrCat("jobs/digits/checkpoints/", name));
    v1::Checkpoint checkpoint;
    expect_refused(stub_->GetCheckpoint(&get_context, get, &checkpoint), "checkpoint " + name);
    v1::DeleteJobRequest removal;
    removal.set_name(absl::StrCat("jobs/", name));
    removal.set_delete_outputs(true);
    google::protobuf::Empty nothing;
    expect_refused(stub_->DeleteJob(&delete_context, removal, &nothing), "job " + name);
  }
  EXPECT_TRUE(std::filesystem::exists(Path("outside/evil.yaml")));
  EXPECT_EQ(NumJobs(), 0);
}

TEST_F(Row33, ADataSetFileLeadsNoFurtherThanTheJobItself) {
  std::filesystem::copy(Path("datasets/cache"), Path("outside/cache"));
  for (const std::string& cache : {std::string("../outside/cache"), Path("outside/cache")}) {
    Write("datasets/out.toml", absl::StrCat("[general]\nresolution=64\n[[datasets]]\n",
                                            "cache_directory='", cache, "'\n"));
    const grpc::Status status =
        CreateWith([](auto& spec) { spec.mutable_dataset()->set_config("out.toml"); });
    EXPECT_THAT(status.error_code(),
                AnyOf(grpc::StatusCode::INVALID_ARGUMENT, grpc::StatusCode::PERMISSION_DENIED))
        << status.error_message();
  }
  EXPECT_EQ(NumJobs(), 0);
}

// The link is another one each time the server looks. Inside lies a model of six blocks, outside
// one of three: whatever the moment, nobody gets a plan of three.
TEST_F(Row34, ALinkThatChangesWhileAJobIsCheckedIsNeverFollowedOutside) {
  constexpr int kTries = 300;
  ASSERT_TRUE(
      worker::WriteTinyCheckpoint(Path("outside/base"), worker::TinyQwenImageConfig(3)).ok());
  const auto point_to = [this](const char* target) {
    ASSERT_EQ(::symlink(target, Path("models/next").c_str()), 0);
    ASSERT_EQ(::rename(Path("models/next").c_str(), Path("models/link").c_str()), 0);
  };
  v1::CreateJobRequest request;
  *request.mutable_spec() = good_;
  request.mutable_spec()->mutable_model()->set_weights("link");
  request.set_validate_only(true);
  v1::Job job;
  point_to("base");
  ASSERT_TRUE(Create(request, &job).ok());
  EXPECT_EQ(job.plan().num_blocks(), 6);
  point_to("../outside/base");
  EXPECT_EQ(ErrorReason(Create(request, &job)), "PATH_NOT_ALLOWED");
  std::atomic<bool> done{false};
  std::thread swapper([&] {
    for (int i = 0; !done.load(); ++i) point_to(i % 2 == 0 ? "base" : "../outside/base");
  });
  for (int i = 0; i < kTries; ++i) {
    v1::Job planned;
    const grpc::Status status = Create(request, &planned);
    if (status.ok()) {
      EXPECT_EQ(planned.plan().num_blocks(), 6);
    }
    EXPECT_NE(status.error_code(), grpc::StatusCode::INTERNAL) << status.error_message();
  }
  done.store(true);
  swapper.join();
}

TEST_F(Row34, FifosDevicesAndDirectoriesKeepNobodyWaiting) {
  for (const char* root : {"models", "datasets"}) {
    ASSERT_EQ(::mkfifo(Path(absl::StrCat(root, "/fifo")).c_str(), 0600), 0);
    ASSERT_EQ(::symlink("/dev/zero", Path(absl::StrCat(root, "/zero")).c_str()), 0);
    std::filesystem::create_directories(Path(absl::StrCat(root, "/directory")));
  }
  for (const auto& [field, set] : PathFields()) {
    for (const char* path : {"fifo", "zero", "directory"}) {
      const grpc::Status status = CreateWith([&, &set = set](auto& spec) { set(spec, path); });
      EXPECT_THAT(status.error_code(),
                  AnyOf(grpc::StatusCode::INVALID_ARGUMENT, grpc::StatusCode::PERMISSION_DENIED))
          << field << " " << path << " " << status.error_message();
    }
  }
  EXPECT_EQ(NumJobs(), 0);
}

// A hard link is a file like any other; who may make one could copy it as well. It is read as what
// it is said to be, and no answer repeats what stands in it.
TEST_F(Row34, AHardLinkToASecretIsNoModelAndNoDataSetAndIsNotRepeated) {
  Write("outside/secret", "root:$6$topsecret:19000\nanother line of topsecret\n");
  for (const char* root : {"models", "datasets"}) {
    ASSERT_EQ(::link(Path("outside/secret").c_str(), Path(absl::StrCat(root, "/hard")).c_str()), 0);
  }
  for (const auto& [field, set] : PathFields()) {
    const grpc::Status status = CreateWith([&set = set](auto& spec) { set(spec, "hard"); });
    // Of an adapter to start from the worker alone reads the file.
    if (field != "network.weights") {
      EXPECT_FALSE(status.ok()) << field;
    }
    EXPECT_THAT(status.error_message(), Not(HasSubstr("topsecret"))) << field;
    EXPECT_THAT(status.error_details(), Not(HasSubstr("topsecret"))) << field;
  }
}

}  // namespace
}  // namespace blockswap::server
