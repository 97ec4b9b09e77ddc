// SPDX-License-Identifier: Apache-2.0
#include "server/base/random_text.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <cstdlib>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace blockswap::server {
namespace {

constexpr absl::string_view kReadable = "23456789abcdefghjkmnpqrstuvwxyz";

const unsigned char* Bytes(absl::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

std::string RandomBytes(int count) {
  std::string bytes(static_cast<size_t>(count), '\0');
  // No secret may be made without randomness: there is nothing to fall back on.
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), count) != 1) std::abort();
  return bytes;
}

std::string RandomUuid() {
  std::string bytes = RandomBytes(16);
  bytes[6] = static_cast<char>((bytes[6] & 0x0f) | 0x40);
  bytes[8] = static_cast<char>((bytes[8] & 0x3f) | 0x80);
  const std::string hex = ToHex(bytes);
  return absl::StrCat(hex.substr(0, 8), "-", hex.substr(8, 4), "-", hex.substr(12, 4), "-",
                      hex.substr(16, 4), "-", hex.substr(20));
}

std::string RandomSuffix(int length) {
  std::string text;
  for (const char byte : RandomBytes(length)) {
    text.push_back(kReadable[static_cast<unsigned char>(byte) % kReadable.size()]);
  }
  return text;
}

std::string ToHex(absl::string_view bytes) { return absl::BytesToHexString(bytes); }

std::string Sha256(absl::string_view bytes) {
  std::string digest(32, '\0');
  unsigned int length = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()),
                 &length, EVP_sha256(), nullptr) != 1) {
    std::abort();
  }
  return digest;
}

std::string HmacSha256(absl::string_view key, absl::string_view bytes) {
  std::string digest(32, '\0');
  unsigned int length = 0;
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), Bytes(bytes), bytes.size(),
           reinterpret_cast<unsigned char*>(digest.data()), &length) == nullptr) {
    std::abort();
  }
  return digest;
}

bool EqualsInConstantTime(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace blockswap::server
