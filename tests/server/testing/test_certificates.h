// SPDX-License-Identifier: Apache-2.0
// Certificates made on the spot, so that no key lies in the sources and none expires.
#ifndef BLOCKSWAP_TESTS_SERVER_TESTING_TEST_CERTIFICATES_H_
#define BLOCKSWAP_TESTS_SERVER_TESTING_TEST_CERTIFICATES_H_

#include <memory>
#include <string>

namespace blockswap::server {

struct PemPair {
  std::string certificate, key;
};

struct CertificateRequest {
  std::string common_name;
  std::string alternative_names;  // "DNS:localhost,IP:127.0.0.1" or "URI:spiffe://site/ci"
  int valid_from_seconds = -60, valid_to_seconds = 3600;  // from now
};

// Signs for one test. Aborts the test program where the library fails.
class TestAuthority final {
 public:
  explicit TestAuthority(const std::string& name = "test authority");
  ~TestAuthority();
  const std::string& certificate() const { return own_.certificate; }
  PemPair Issue(const CertificateRequest& request) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
  PemPair own_;
};

void WriteTextFile(const std::string& path, const std::string& text, unsigned int mode);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_TESTS_SERVER_TESTING_TEST_CERTIFICATES_H_
