// SPDX-License-Identifier: Apache-2.0
// Rows 39 and 40 of the fault list: what reaches the daemon's log.
#include "server/base/redaction.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <algorithm>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/base/secret_finder.h"

namespace blockswap::server {
namespace {

TEST(RedactionTest, SecretsGoAndTheRestStays) {
  const std::string token = absl::StrCat("bst_", std::string(43, 'a'));
  EXPECT_EQ(WithoutSecrets(absl::StrCat("token ", token, " of ci")), "token bst_[redacted] of ci");
  EXPECT_EQ(WithoutSecrets(absl::StrCat("Authorization: Bearer ", token)),
            "Authorization: Bearer [redacted]");
  EXPECT_EQ(WithoutSecrets("HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz, x"),
            "HF_TOKEN=hf_[redacted], x");
  EXPECT_EQ(WithoutSecrets("http://me:secret@host/path?x=1"), "http://me:[redacted]@host/path?x=1");
}

TEST(RedactionTest, WordsThatOnlyLookAlikeStay) {
  for (const char* text : {"", "bst_", "hf_model", "hf_cache/models/qwen-image/transformer",
                           "bst_jobs/models/qwen-image", "bearer of news", "http://host:80/a@b",
                           "unix:/run/blockswap/d.sock", "a://b", "user@host"}) {
    EXPECT_EQ(WithoutSecrets(text), text);
    EXPECT_FALSE(HoldsSecret(text)) << text;
  }
}

TEST(RedactionTest, FindsTokensAndPasswordsButNotWhatOnlyFollowsTheWordBearer) {
  const std::string token = absl::StrCat("bst_", std::string(43, 'a'));
  for (const std::string& text : {token, absl::StrCat("of ", token), absl::StrCat("Bearer ", token),
                                  std::string("x/hf_abcdefghijklmnopqrstuvwxyz"),
                                  std::string("ftp://me:secret@host/model")}) {
    EXPECT_TRUE(HoldsSecret(text)) << text;
  }
  EXPECT_FALSE(HoldsSecret("standard bearer portraits"));
}

TEST(LogTest, AnEventIsOneLineWithoutSecretsWhateverItsText) {
  std::ostringstream out;
  const auto before = spdlog::default_logger();
  const auto logger = std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(out));
  logger->set_pattern("%l %v");
  spdlog::set_default_logger(logger);
  LogWarning("job {}: {}", "a\n[error] all is lost\x1b[2J\xe2\x80\xae",
             absl::StrCat("bst_", std::string(43, 'b')));
  spdlog::set_default_logger(before);
  EXPECT_EQ(out.str(), "warning job a\\n[error] all is lost\\x1b[2J\\u202e: bst_[redacted]\n");
}

}  // namespace
}  // namespace blockswap::server
