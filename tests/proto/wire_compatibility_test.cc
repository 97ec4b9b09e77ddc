// SPDX-License-Identifier: Apache-2.0
// Compares the API with its last released form (tests/proto/v1.descriptor): old clients and stored
// jobs must still be understood. After a release, or a change that this test was right to refuse
// and that is wanted all the same, write it anew:
//   protoc -I proto --include_imports --descriptor_set_out=tests/proto/v1.descriptor
//   proto/blockswap/v1/*.proto
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "blockswap/v1/admin.pb.h"
#include "blockswap/v1/training.pb.h"
#include "blockswap/v1/worker.pb.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "gtest/gtest.h"

namespace blockswap {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::ServiceDescriptor;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The names of what a field refers to count, not only its kind.
std::string Shape(const FieldDescriptor& field) {
  std::string shape = absl::StrCat(field.name(), " ", field.type_name());
  if (field.message_type() != nullptr)
    absl::StrAppend(&shape, " ", field.message_type()->full_name());
  if (field.enum_type() != nullptr) absl::StrAppend(&shape, " ", field.enum_type()->full_name());
  if (field.is_repeated()) absl::StrAppend(&shape, " repeated");
  if (field.real_containing_oneof() != nullptr)
    absl::StrAppend(&shape, " in ", field.real_containing_oneof()->name());
  return shape;
}

class Comparison final {
 public:
  explicit Comparison(const DescriptorPool& now) : now_(now) {}

  void Compare(const FileDescriptor& was) {
    for (int i = 0; i < was.message_type_count(); ++i) CompareMessage(*was.message_type(i));
    for (int i = 0; i < was.enum_type_count(); ++i) CompareEnum(*was.enum_type(i));
    for (int i = 0; i < was.service_count(); ++i) CompareService(*was.service(i));
  }
  const std::vector<std::string>& breaks() const { return breaks_; }

 private:
  void CompareMessage(const Descriptor& was) {
    const Descriptor* now = now_.FindMessageTypeByName(was.full_name());
    if (now == nullptr) return Break(was.full_name(), "is gone");
    for (int i = 0; i < was.field_count(); ++i) {
      const FieldDescriptor& field = *was.field(i);
      const FieldDescriptor* same = now->FindFieldByNumber(field.number());
      if (same == nullptr) {
        if (!now->IsReservedNumber(field.number()))
          Break(field.full_name(), "is gone and its number not reserved");
      } else if (Shape(*same) != Shape(field)) {
        Break(field.full_name(), absl::StrCat("was '", Shape(field), "', is '", Shape(*same), "'"));
      }
    }
    for (int i = 0; i < was.nested_type_count(); ++i) CompareMessage(*was.nested_type(i));
    for (int i = 0; i < was.enum_type_count(); ++i) CompareEnum(*was.enum_type(i));
  }

  void CompareEnum(const EnumDescriptor& was) {
    const EnumDescriptor* now = now_.FindEnumTypeByName(was.full_name());
    if (now == nullptr) return Break(was.full_name(), "is gone");
    for (int i = 0; i < was.value_count(); ++i) {
      const auto* same = now->FindValueByNumber(was.value(i)->number());
      if (same == nullptr || same->name() != was.value(i)->name())
        Break(was.value(i)->full_name(), "is gone or renamed");
    }
  }

  void CompareService(const ServiceDescriptor& was) {
    const ServiceDescriptor* now = now_.FindServiceByName(was.full_name());
    if (now == nullptr) return Break(was.full_name(), "is gone");
    for (int i = 0; i < was.method_count(); ++i) {
      const auto& method = *was.method(i);
      const auto* same = now->FindMethodByName(method.name());
      if (same == nullptr) {
        Break(method.full_name(), "is gone");
      } else if (same->input_type()->full_name() != method.input_type()->full_name() ||
                 same->output_type()->full_name() != method.output_type()->full_name() ||
                 same->client_streaming() != method.client_streaming() ||
                 same->server_streaming() != method.server_streaming()) {
        Break(method.full_name(), "has another signature");
      }
    }
  }

  void Break(const std::string& what, const std::string& how) {
    breaks_.push_back(absl::StrCat(what, " ", how));
  }

  const DescriptorPool& now_;
  std::vector<std::string> breaks_;
};

google::protobuf::FileDescriptorSet ReadReleased() {
  google::protobuf::FileDescriptorSet set;
  const char* root = std::getenv("BLOCKSWAP_SOURCE_DIR");
  std::ifstream file(absl::StrCat(root == nullptr ? "" : root, "/tests/proto/v1.descriptor"),
                     std::ios::binary);
  EXPECT_TRUE(file.good() && set.ParseFromIstream(&file));
  return set;
}

std::vector<std::string> Breaks(const google::protobuf::FileDescriptorSet& released,
                                const DescriptorPool& now) {
  DescriptorPool pool;
  Comparison comparison(now);
  for (const auto& file : released.file()) {
    const FileDescriptor* was = pool.BuildFile(file);
    EXPECT_NE(was, nullptr) << file.name();
    if (was != nullptr && absl::StartsWith(file.name(), "blockswap/")) comparison.Compare(*was);
  }
  return comparison.breaks();
}

TEST(WireCompatibilityTest, OldClientsAreStillUnderstood) {
  // Linked in, so that the generated pool knows every file.
  ASSERT_NE(v1::Job::descriptor(), nullptr);
  ASSERT_NE(v1::Device::descriptor(), nullptr);
  ASSERT_NE(v1::WorkerMessage::descriptor(), nullptr);
  const google::protobuf::FileDescriptorSet released = ReadReleased();
  ASSERT_GE(released.file_size(), 5);
  EXPECT_THAT(Breaks(released, *DescriptorPool::generated_pool()), IsEmpty());
}

TEST(WireCompatibilityTest, NoticesEveryKindOfBreak) {
  const google::protobuf::FileDescriptorSet released = ReadReleased();
  DescriptorPool changed;
  for (google::protobuf::FileDescriptorProto file : released.file()) {
    if (file.name() == "blockswap/v1/event.proto") {
      for (auto& message : *file.mutable_message_type()) {
        if (message.name() != "Failure") continue;
        message.mutable_field(1)->set_name("why");  // reason
        message.mutable_field(2)->set_type(
            google::protobuf::FieldDescriptorProto::TYPE_BYTES);  // message
        message.mutable_field()->RemoveLast();                    // step
      }
      file.mutable_enum_type(0)->mutable_value(1)->set_name("JOB_STATE_WAITING");
    }
    if (file.name() == "blockswap/v1/worker.proto")
      file.mutable_service(0)->mutable_method(0)->set_server_streaming(false);
    ASSERT_NE(changed.BuildFile(file), nullptr);
  }
  EXPECT_THAT(Breaks(released, changed),
              ElementsAre("blockswap.v1.Failure.reason was 'reason string', is 'why string'",
                          "blockswap.v1.Failure.message was 'message string', is 'message bytes'",
                          "blockswap.v1.Failure.step is gone and its number not reserved",
                          "blockswap.v1.JOB_STATE_QUEUED is gone or renamed",
                          "blockswap.v1.WorkerService.Attach has another signature"));
}

// The breaks of the released form against itself with one file changed.
std::vector<std::string> BreaksAfter(
    const std::string& file_name,
    const std::function<void(google::protobuf::FileDescriptorProto&)>& change) {
  const google::protobuf::FileDescriptorSet released = ReadReleased();
  DescriptorPool changed;
  for (google::protobuf::FileDescriptorProto file : released.file()) {
    if (file.name() == file_name) change(file);
    EXPECT_NE(changed.BuildFile(file), nullptr) << file.name();
  }
  return Breaks(released, changed);
}

google::protobuf::DescriptorProto& Message(google::protobuf::FileDescriptorProto& file,
                                           const std::string& name) {
  for (auto& message : *file.mutable_message_type()) {
    if (message.name() == name) return message;
  }
  ADD_FAILURE() << "no message " << name;
  return *file.add_message_type();
}

TEST(WireCompatibilityTest, NoticesARemovedCall) {
  EXPECT_THAT(
      BreaksAfter("blockswap/v1/admin.proto",
                  [](auto& file) { file.mutable_service(0)->mutable_method()->RemoveLast(); }),
      ElementsAre("blockswap.v1.AdminService.ReloadConfig is gone"));
}

TEST(WireCompatibilityTest, NoticesANewNumberEvenWhereTheNameStays) {
  EXPECT_THAT(
      BreaksAfter("blockswap/v1/training.proto",
                  [](auto& file) { Message(file, "Attempt").mutable_field(0)->set_number(99); }),
      ElementsAre("blockswap.v1.Attempt.name is gone and its number not reserved"));
}

TEST(WireCompatibilityTest, NoticesAFieldThatBecomesRepeated) {
  EXPECT_THAT(
      BreaksAfter("blockswap/v1/training.proto",
                  [](auto& file) {
                    Message(file, "Attempt")
                        .mutable_field(0)
                        ->set_label(google::protobuf::FieldDescriptorProto::LABEL_REPEATED);
                  }),
      ElementsAre("blockswap.v1.Attempt.name was 'name string', is 'name string repeated'"));
}

TEST(WireCompatibilityTest, AcceptsAFieldGivenUpWithItsNumberAndWhatIsNew) {
  EXPECT_THAT(BreaksAfter("blockswap/v1/training.proto",
                          [](auto& file) {
                            auto& attempt = Message(file, "Attempt");
                            auto* kept = attempt.add_reserved_range();
                            kept->set_start(attempt.field(0).number());
                            kept->set_end(attempt.field(0).number() + 1);
                            attempt.mutable_field()->DeleteSubrange(0, 1);
                            file.add_message_type()->set_name("Novelty");
                          }),
              IsEmpty());
}

}  // namespace
}  // namespace blockswap
