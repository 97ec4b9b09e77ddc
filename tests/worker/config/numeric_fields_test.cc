// SPDX-License-Identifier: Apache-2.0
// Row 32 of the fault list: every number of the schema, found by reflection, with every value that
// is none to work with. A field that is added is tested without a word here.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/worker/config/spec_fixture.h"

namespace blockswap::worker {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Fields for which zero means something; all else of the values below is refused everywhere.
const std::set<std::string>& ZeroIsGood() {
  static const auto* fields = new std::set<std::string>{"network.alpha",
                                                        "training.seed",
                                                        "training.min_timestep",
                                                        "training.max_grad_norm",
                                                        "training.optimizer.beta1",
                                                        "training.optimizer.beta2",
                                                        "training.optimizer.weight_decay",
                                                        "training.scheduler.warmup_steps",
                                                        "training.scheduler.min_lr_ratio",
                                                        "sampling.every_steps",
                                                        "output.save_every_steps",
                                                        "retry.max_restarts",
                                                        "priority"};
  return *fields;
}

bool IsGood(const std::string& field, double value) {
  if (value == 0) return ZeroIsGood().count(field) != 0;
  return field == "priority" && value == -1;
}

struct NumericField {
  std::string path;
  std::vector<const FieldDescriptor*> way;
};

void Collect(const google::protobuf::Descriptor& type, const NumericField& above,
             std::vector<NumericField>* found) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* field = type.field(i);
    NumericField here = above;
    absl::StrAppend(&here.path, here.path.empty() ? "" : ".", field->name());
    here.way.push_back(field);
    if (field->is_repeated()) continue;
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        Collect(*field->message_type(), here, found);
        break;
      case FieldDescriptor::CPPTYPE_INT32:
      case FieldDescriptor::CPPTYPE_INT64:
      case FieldDescriptor::CPPTYPE_DOUBLE:
        found->push_back(here);
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
      case FieldDescriptor::CPPTYPE_STRING:
        break;
      default:
        ADD_FAILURE() << here.path << " is of a kind that this test does not know";
    }
  }
}

// Whole numbers beyond the type become its largest and smallest.
void Set(const NumericField& field, double wanted, Message* message) {
  for (size_t i = 0; i + 1 < field.way.size(); ++i)
    message = message->GetReflection()->MutableMessage(message, field.way[i]);
  const FieldDescriptor* last = field.way.back();
  const auto* reflection = message->GetReflection();
  const auto whole = [wanted](auto least) {
    using Int = decltype(least);
    if (wanted >= static_cast<double>(std::numeric_limits<Int>::max()))
      return std::numeric_limits<Int>::max();
    if (wanted <= static_cast<double>(std::numeric_limits<Int>::min()))
      return std::numeric_limits<Int>::min();
    return static_cast<Int>(wanted);
  };
  if (last->cpp_type() == FieldDescriptor::CPPTYPE_INT32) {
    reflection->SetInt32(message, last, whole(int32_t{0}));
  } else if (last->cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
    reflection->SetInt64(message, last, whole(int64_t{0}));
  } else {
    reflection->SetDouble(message, last, wanted);
  }
}

class NumericFieldsTest : public SpecFixture {};

TEST_F(NumericFieldsTest, ValuesThatAreNoneAreViolationsOfTheirField) {
  std::vector<NumericField> fields;
  Collect(*v1::JobSpec::descriptor(), {}, &fields);
  ASSERT_GT(fields.size(), 20u);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kMost = std::numeric_limits<double>::max();
  std::set<std::string> unused = ZeroIsGood();
  for (const NumericField& field : fields) {
    unused.erase(field.path);
    const bool is_real = field.way.back()->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE;
    std::vector<double> values = {-1, 0, kMost, -kMost};
    if (is_real) {
      for (const double value : {std::nan(""), kInfinity, -kInfinity}) values.push_back(value);
    }
    for (const double value : values) {
      v1::JobSpec spec = good_;
      Set(field, value, &spec);
      const SpecResult result = ValidateSpec(spec, roots_);
      // Nothing is below a largest time of zero, and that is what is said.
      const std::string told = field.path == "training.max_timestep" && value == 0
                                   ? "training.min_timestep"
                                   : field.path;
      const bool names_it = std::any_of(result.violations.begin(), result.violations.end(),
                                        [&told](const auto& found) { return found.field == told; });
      EXPECT_EQ(names_it, !IsGood(field.path, value)) << field.path << " = " << value;
      EXPECT_EQ(result.config.has_value(), result.violations.empty());
    }
  }
  EXPECT_THAT(unused, ::testing::IsEmpty()) << "no such fields any more";
}

}  // namespace
}  // namespace blockswap::worker
