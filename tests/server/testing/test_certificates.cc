// SPDX-License-Identifier: Apache-2.0
#include "tests/server/testing/test_certificates.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace blockswap::server {
namespace {

void Must(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "test certificates: %s failed\n", what);
  std::abort();
}

std::string Text(BIO* bio) {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio, &bytes);
  std::string text(bytes, static_cast<size_t>(size));
  BIO_free(bio);
  return text;
}

std::string PemOf(X509* certificate) {
  BIO* bio = BIO_new(BIO_s_mem());
  Must(PEM_write_bio_X509(bio, certificate) == 1, "PEM_write_bio_X509");
  return Text(bio);
}

std::string PemOf(EVP_PKEY* key) {
  BIO* bio = BIO_new(BIO_s_mem());
  Must(PEM_write_bio_PKCS8PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr) == 1,
       "PEM_write_bio_PKCS8PrivateKey");
  return Text(bio);
}

void Extend(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  Must(extension != nullptr, "X509V3_EXT_conf_nid");
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

X509* MakeCertificate(const CertificateRequest& request, EVP_PKEY* key) {
  static long serial = 1;
  X509* certificate = X509_new();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate), request.valid_from_seconds);
  X509_gmtime_adj(X509_getm_notAfter(certificate), request.valid_to_seconds);
  X509_set_pubkey(certificate, key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(request.common_name.c_str()),
                             -1, -1, 0);
  return certificate;
}

}  // namespace

struct TestAuthority::Parts {
  ~Parts() {
    X509_free(certificate);
    EVP_PKEY_free(key);
  }
  X509* certificate = nullptr;
  EVP_PKEY* key = nullptr;
};

TestAuthority::TestAuthority(const std::string& name) : parts_(std::make_unique<Parts>()) {
  parts_->key = EVP_EC_gen("P-256");
  Must(parts_->key != nullptr, "EVP_EC_gen");
  CertificateRequest request;
  request.common_name = name;
  parts_->certificate = MakeCertificate(request, parts_->key);
  X509* own = parts_->certificate;
  X509_set_issuer_name(own, X509_get_subject_name(own));
  Extend(own, own, NID_basic_constraints, "critical,CA:TRUE");
  Extend(own, own, NID_key_usage, "critical,keyCertSign,cRLSign");
  Extend(own, own, NID_subject_key_identifier, "hash");
  Must(X509_sign(own, parts_->key, EVP_sha256()) > 0, "X509_sign");
  own_ = {PemOf(own), PemOf(parts_->key)};
}

TestAuthority::~TestAuthority() = default;

PemPair TestAuthority::Issue(const CertificateRequest& request) const {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  Must(key != nullptr, "EVP_EC_gen");
  X509* certificate = MakeCertificate(request, key);
  X509_set_issuer_name(certificate, X509_get_subject_name(parts_->certificate));
  Extend(certificate, parts_->certificate, NID_basic_constraints, "critical,CA:FALSE");
  Extend(certificate, parts_->certificate, NID_authority_key_identifier, "keyid");
  if (!request.alternative_names.empty()) {
    Extend(certificate, parts_->certificate, NID_subject_alt_name, request.alternative_names);
  }
  Must(X509_sign(certificate, parts_->key, EVP_sha256()) > 0, "X509_sign");
  PemPair pair{PemOf(certificate), PemOf(key)};
  X509_free(certificate);
  EVP_PKEY_free(key);
  return pair;
}

void WriteTextFile(const std::string& path, const std::string& text, unsigned int mode) {
  // By rename, as tools that renew certificates do it.
  const std::string next = path + ".next";
  std::ofstream(next) << text;
  Must(::chmod(next.c_str(), mode) == 0 && std::rename(next.c_str(), path.c_str()) == 0, "rename");
}

}  // namespace blockswap::server
