// SPDX-License-Identifier: Apache-2.0
#include "worker/io/sha256.h"

#include <errno.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "worker/io/regular_file.h"

namespace blockswap::worker {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;  // large enough that system calls do not show

struct ContextDeleter {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

class Digest {
 public:
  Digest() : context_(EVP_MD_CTX_new()) {
    EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr);
  }
  void Update(const void* bytes, size_t size) { EVP_DigestUpdate(context_.get(), bytes, size); }
  std::string Hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    EVP_DigestFinal_ex(context_.get(), digest, &size);
    return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), size));
  }

 private:
  std::unique_ptr<EVP_MD_CTX, ContextDeleter> context_;
};

}  // namespace

std::string Sha256Hex(absl::string_view bytes) {
  Digest digest;
  digest.Update(bytes.data(), bytes.size());
  return digest.Hex();
}

absl::StatusOr<FileDigest> Sha256OfFile(const std::string& path) {
  BLOCKSWAP_ASSIGN_OR_RETURN(RegularFile file, OpenRegularFile(path));
  Digest digest;
  FileDigest result;
  std::vector<char> piece(kPieceBytes);
  while (true) {
    const ssize_t count = read(file.fd.get(), piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoStatus(errno, absl::StrCat("cannot read ", path));
    if (count == 0) break;
    digest.Update(piece.data(), static_cast<size_t>(count));
    result.bytes += count;
  }
  result.sha256 = digest.Hex();
  return result;
}

}  // namespace blockswap::worker
