// SPDX-License-Identifier: Apache-2.0
// Row 44 of the fault list: files that are missing, do not match, have expired, or change.
#include "server/auth/tls_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>

#include "tests/server/testing/temporary_directory.h"
#include "tests/server/testing/test_certificates.h"

namespace blockswap::server {
namespace {

using ::testing::HasSubstr;

class TlsFilesTest : public ::testing::Test {
 protected:
  void SetUp() override { Put(authority_.Issue({"localhost", "DNS:localhost"})); }
  void Put(const PemPair& pair) {
    WriteTextFile(paths_.certificate, pair.certificate, 0644);
    WriteTextFile(paths_.key, pair.key, 0600);
  }
  std::string Error() const { return std::string(ReadTlsFiles(paths_).status().message()); }
  std::string StagedKey(const TlsFiles& files) const {
    std::ifstream file(files.staged().key);
    return std::string((std::istreambuf_iterator<char>(file)), {});
  }
  std::string copies() const { return directory_.path() + "/copies"; }

  const TemporaryDirectory directory_;
  const TestAuthority authority_;
  TlsPaths paths_{directory_.path() + "/tls.crt", directory_.path() + "/tls.key", ""};
};

TEST_F(TlsFilesTest, MatchingFilesAreTaken) {
  const auto texts = ReadTlsFiles(paths_);
  ASSERT_TRUE(texts.ok()) << texts.status();
  EXPECT_THAT(texts->key, HasSubstr("PRIVATE KEY"));
}

TEST_F(TlsFilesTest, MissingFileIsNamed) {
  ::remove(paths_.key.c_str());
  EXPECT_TRUE(absl::IsNotFound(ReadTlsFiles(paths_).status()));
  EXPECT_THAT(Error(), HasSubstr("tls.key"));
}

TEST_F(TlsFilesTest, KeyOfAnotherCertificateIsRefused) {
  WriteTextFile(paths_.key, authority_.Issue({"other", ""}).key, 0600);
  EXPECT_THAT(Error(), HasSubstr("is not that of the certificate"));
}

TEST_F(TlsFilesTest, ExpiredAndFutureCertificatesAreRefused) {
  CertificateRequest request{"localhost", "DNS:localhost", -7200, -3600};
  Put(authority_.Issue(request));
  EXPECT_THAT(Error(), HasSubstr("has expired"));
  request.valid_from_seconds = 3600;
  request.valid_to_seconds = 7200;
  Put(authority_.Issue(request));
  EXPECT_THAT(Error(), HasSubstr("is not valid yet"));
}

TEST_F(TlsFilesTest, KeyThatOthersMayReadOrItsGroupWriteIsRefused) {
  for (const unsigned int mode : {0644u, 0604u, 0620u, 0660u, 0777u}) {
    ASSERT_EQ(::chmod(paths_.key.c_str(), mode), 0);
    EXPECT_THAT(Error(), HasSubstr("chmod 0600")) << std::oct << mode;
  }
  for (const unsigned int mode : {0600u, 0400u, 0440u, 0640u}) {
    ASSERT_EQ(::chmod(paths_.key.c_str(), mode), 0);
    EXPECT_EQ(Error(), "") << std::oct << mode;
  }
}

TEST_F(TlsFilesTest, WhatIsNoPemIsRefused) {
  WriteTextFile(paths_.certificate, "garbage", 0644);
  EXPECT_THAT(Error(), HasSubstr("no PEM certificate"));
  SetUp();
  WriteTextFile(paths_.key, "garbage", 0600);
  EXPECT_THAT(Error(), HasSubstr("no PEM private key"));
  SetUp();
  ::remove(paths_.certificate.c_str());
  ASSERT_EQ(::mkfifo(paths_.certificate.c_str(), 0600), 0);
  EXPECT_THAT(Error(), HasSubstr("no regular file"));
}

TEST_F(TlsFilesTest, ServerDoesNotStartWithBadFiles) {
  WriteTextFile(paths_.key, "garbage", 0600);
  EXPECT_FALSE(TlsFiles::Start(paths_, copies()).ok());
}

TEST_F(TlsFilesTest, GoodNewFilesReplaceAndBadOnesLeaveTheOldInUse) {
  const auto files = TlsFiles::Start(paths_, copies(), std::chrono::hours(1));
  ASSERT_TRUE(files.ok()) << files.status();
  const std::string first = StagedKey(**files);
  const PemPair second = authority_.Issue({"localhost", "DNS:localhost"});
  // Half of an exchange: the new certificate with the old key.
  WriteTextFile(paths_.certificate, second.certificate, 0644);
  EXPECT_FALSE((*files)->Check().ok());
  EXPECT_EQ(StagedKey(**files), first);
  WriteTextFile(paths_.key, second.key, 0600);
  EXPECT_TRUE((*files)->Check().ok());
  EXPECT_EQ(StagedKey(**files), second.key);
  ::remove(paths_.key.c_str());
  EXPECT_FALSE((*files)->Check().ok());
  EXPECT_EQ(StagedKey(**files), second.key);
}

TEST_F(TlsFilesTest, EndOfTheCertificateInUseIsToldWithEachNewOne) {
  std::vector<absl::Time> ends;
  const auto issue = [this](int seconds) {
    CertificateRequest request{"localhost", "DNS:localhost"};
    request.valid_to_seconds = seconds;
    Put(authority_.Issue(request));
  };
  issue(7200);
  const absl::Time now = absl::Now();
  const auto files = TlsFiles::Start(paths_, copies(), std::chrono::hours(1),
                                     [&ends](absl::Time end) { ends.push_back(end); });
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_TRUE((*files)->Check().ok());
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_NEAR(absl::ToDoubleSeconds(ends[0] - now), 7200, 60);
  issue(360000);
  ASSERT_TRUE((*files)->Check().ok());
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_NEAR(absl::ToDoubleSeconds(ends[1] - now), 360000, 60);
  // One that does not serve is not in use.
  issue(-10);
  EXPECT_FALSE((*files)->Check().ok());
  EXPECT_EQ(ends.size(), 2u);
}

TEST_F(TlsFilesTest, CopiesAreTheServersAloneAndGoWithIt) {
  {
    const auto files = TlsFiles::Start(paths_, copies(), std::chrono::hours(1));
    ASSERT_TRUE(files.ok()) << files.status();
    struct stat facts {};
    ASSERT_EQ(::stat((*files)->staged().key.c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777, 0600u);
    ASSERT_EQ(::stat(copies().c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777, 0700u);
  }
  EXPECT_FALSE(std::filesystem::exists(copies()));
}

TEST_F(TlsFilesTest, WatchFindsNewFilesByItself) {
  const auto files = TlsFiles::Start(paths_, copies(), std::chrono::milliseconds(5));
  ASSERT_TRUE(files.ok()) << files.status();
  const PemPair second = authority_.Issue({"localhost", "DNS:localhost"});
  Put(second);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (StagedKey(**files) != second.key && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  EXPECT_EQ(StagedKey(**files), second.key);
}

}  // namespace
}  // namespace blockswap::server
