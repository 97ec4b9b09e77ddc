// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/endpoint_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "client/cpp/server_client.h"

namespace blockswap::client {
namespace {

using ::testing::HasSubstr;

class EndpointFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/tmp/blockswap-test-XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string Write(const std::string& text, mode_t mode = 0600) const {
    const std::string path = directory_ + "/token";
    std::ofstream(path, std::ios::binary) << text;
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    return path;
  }
  std::string directory_;
};

TEST_F(EndpointFilesTest, TokenIsTheOneWordOfItsFile) {
  EXPECT_EQ(*ReadTokenFile(Write("bst_abc\n")), "bst_abc");
  EXPECT_EQ(*ReadTokenFile(Write("  bst_abc  ")), "bst_abc");
}

TEST_F(EndpointFilesTest, WhatIsNoTokenIsRefusedWithoutShowingIt) {
  for (const std::string& text :
       {std::string(), std::string("\n"), std::string("two words"), std::string("a\nb"),
        std::string("a\0b", 3), std::string(5000, 'x')}) {
    const auto token = ReadTokenFile(Write(text));
    ASSERT_FALSE(token.ok()) << text;
    EXPECT_EQ(token.status().message().find("words"), std::string::npos);
  }
  EXPECT_TRUE(absl::IsNotFound(ReadTokenFile(directory_ + "/none").status()));
}

TEST_F(EndpointFilesTest, FileThatEverybodyMayReadIsRefused) {
  const auto token = ReadTokenFile(Write("bst_abc", 0644));
  EXPECT_THAT(std::string(token.status().message()), HasSubstr("chmod 0600"));
  EXPECT_TRUE(ReadTokenFile(Write("bst_abc", 0640)).ok());
}

TEST_F(EndpointFilesTest, PemIsRecognised) {
  EXPECT_TRUE(ReadPemFile(Write("-----BEGIN CERTIFICATE-----\nx\n")).ok());
  EXPECT_FALSE(ReadPemFile(Write("x")).ok());
}

TEST(ConnectTest, TcpTakesATokenOrACertificate) {
  ConnectOptions options;
  options.target = "localhost:7543";
  const auto without = ServerClient::Connect(options);
  ASSERT_FALSE(without.ok());
  EXPECT_THAT(std::string(without.status().message()), HasSubstr("--token-file"));
  options.token = "bst_abc";
  EXPECT_TRUE(ServerClient::Connect(options).ok());
}

TEST(ConnectTest, OtherAddressesAreExplained) {
  for (const char* wrong : {"", "localhost", "relative/path", "host:", "host:port"}) {
    const auto client = ServerClient::Connect(wrong);
    ASSERT_FALSE(client.ok()) << wrong;
    EXPECT_THAT(std::string(client.status().message()), HasSubstr("HOST:PORT")) << wrong;
  }
}

}  // namespace
}  // namespace blockswap::client
