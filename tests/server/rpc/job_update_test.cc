// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/job_update.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace blockswap::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::JobSpec Spec() {
  v1::JobSpec spec;
  spec.set_name("digits");
  spec.set_priority(1);
  spec.mutable_model()->set_weights("digits.safetensors");
  spec.mutable_memory()->set_vram_budget("12GiB");
  spec.mutable_memory()->set_ring_size(2);
  spec.mutable_memory()->set_host_modulation("on");
  (*spec.mutable_labels())["team"] = "vision";
  return spec;
}

v1::UpdateJobRequest Request(const std::vector<std::string>& paths) {
  v1::UpdateJobRequest request;
  for (const std::string& path : paths) request.mutable_update_mask()->add_paths(path);
  return request;
}

TEST(JobUpdateTest, TakesOverWhatTheMaskNamesAndNothingElse) {
  v1::UpdateJobRequest request = Request({"memory.vram_budget", "priority"});
  request.mutable_job()->mutable_spec()->mutable_memory()->set_vram_budget("10GiB");
  request.mutable_job()->mutable_spec()->mutable_memory()->set_ring_size(1);
  request.mutable_job()->mutable_spec()->set_priority(7);
  const SpecUpdate update = ApplyUpdate(Spec(), request);
  EXPECT_THAT(update.violations, IsEmpty());
  EXPECT_EQ(update.spec.memory().vram_budget(), "10GiB");
  EXPECT_EQ(update.spec.memory().ring_size(), 2);
  EXPECT_EQ(update.spec.priority(), 7);
  EXPECT_EQ(update.spec.model().weights(), "digits.safetensors");
  EXPECT_THAT(update.changed, ElementsAre("memory.vram_budget", "priority"));
  EXPECT_TRUE(update.memory_changed);
}

TEST(JobUpdateTest, FieldThatTheRequestLeavesOutGoesBackToItsDefault) {
  const SpecUpdate update =
      ApplyUpdate(Spec(), Request({"memory.ring_size", "labels", "spec.priority"}));
  EXPECT_FALSE(update.spec.memory().has_ring_size());
  EXPECT_TRUE(update.spec.labels().empty());
  EXPECT_EQ(update.spec.priority(), 0);
}

TEST(JobUpdateTest, WholeGroupKeepsWhatMayNotChange) {
  v1::UpdateJobRequest request = Request({"memory"});
  request.mutable_job()->mutable_spec()->mutable_memory()->set_blocks_to_swap("4");
  const SpecUpdate update = ApplyUpdate(Spec(), request);
  EXPECT_THAT(update.violations, IsEmpty());
  EXPECT_EQ(update.spec.memory().blocks_to_swap(), "4");
  EXPECT_EQ(update.spec.memory().vram_budget(), "");
  EXPECT_EQ(update.spec.memory().host_modulation(), "on");
}

TEST(JobUpdateTest, LabelsAreReplacedNotAdded) {
  v1::UpdateJobRequest request = Request({"labels"});
  (*request.mutable_job()->mutable_spec()->mutable_labels())["stage"] = "two";
  const SpecUpdate update = ApplyUpdate(Spec(), request);
  ASSERT_EQ(update.spec.labels().size(), 1u);
  EXPECT_EQ(update.spec.labels().at("stage"), "two");
  EXPECT_FALSE(update.memory_changed);
}

TEST(JobUpdateTest, AskingForWhatIsAlreadySoChangesNothing) {
  v1::UpdateJobRequest request = Request({"memory", "priority", "labels", "retry"});
  *request.mutable_job()->mutable_spec() = Spec();
  const SpecUpdate update = ApplyUpdate(Spec(), request);
  EXPECT_THAT(update.changed, IsEmpty());
  EXPECT_THAT(update.violations, IsEmpty());
}

TEST(JobUpdateTest, EveryPathThatMayNotChangeIsNamed) {
  const SpecUpdate update =
      ApplyUpdate(Spec(), Request({"training.max_steps", "state", "memory.ring_sise",
                                   "memory.host_modulation", "model", "priority"}));
  std::vector<std::string> fields;
  for (const Violation& violation : update.violations) fields.push_back(violation.field);
  EXPECT_THAT(fields, ElementsAre("training.max_steps", "state", "memory.ring_sise",
                                  "memory.host_modulation", "model"));
  EXPECT_THAT(update.violations[0].description, HasSubstr("cannot change after submission"));
  EXPECT_THAT(update.violations[1].description, HasSubstr("the server's"));
  EXPECT_THAT(update.violations[2].description, HasSubstr("no field"));
  EXPECT_THAT(update.violations[3].description, HasSubstr("decided once"));
}

TEST(JobUpdateTest, EmptyMaskIsRefused) {
  const SpecUpdate update = ApplyUpdate(Spec(), Request({}));
  ASSERT_EQ(update.violations.size(), 1u);
  EXPECT_EQ(update.violations[0].field, "update_mask");
}

}  // namespace
}  // namespace blockswap::server
