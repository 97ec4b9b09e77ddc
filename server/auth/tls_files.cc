// SPDX-License-Identifier: Apache-2.0
#include "server/auth/tls_files.h"

#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "server/base/file_lock.h"
#include "server/base/log.h"
#include "server/base/thread_name.h"
#include "server/base/unique_fd.h"

namespace blockswap::server {
namespace {

namespace fs = std::filesystem;

constexpr off_t kMaxPemBytes = 1 << 20;
constexpr mode_t kForbiddenForKeys = 0037;

template <typename T, void (*Free)(T*)>
struct Freed {
  void operator()(T* thing) const { Free(thing); }
};
using X509Ptr = std::unique_ptr<X509, Freed<X509, X509_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY, EVP_PKEY_free>>;
using BioPtr = std::unique_ptr<BIO, Freed<BIO, BIO_free_all>>;

BioPtr BioOf(const std::string& text) {
  return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

absl::StatusOr<std::string> ReadPem(const std::string& path, mode_t forbidden) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat facts {};
  if (!file.valid() || ::fstat(file.get(), &facts) != 0) {
    return absl::NotFoundError(
        absl::StrCat("cannot open the TLS file ", path, ": ", std::strerror(errno)));
  }
  if (!S_ISREG(facts.st_mode) || facts.st_size > kMaxPemBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the TLS file ", path, " is no regular file of at most 1 MiB"));
  }
  if ((facts.st_mode & forbidden) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the TLS key ", path,
                     " has a mode that lets others than its owner and group at it, or its "
                     "group write it; chmod 0600 ",
                     path));
  }
  std::string text(static_cast<size_t>(facts.st_size), '\0');
  const ssize_t got = ::read(file.get(), text.data(), text.size());
  if (got != static_cast<ssize_t>(text.size())) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read all of the TLS file ", path));
  }
  return text;
}

absl::StatusOr<X509Ptr> ParseCertificate(const std::string& text, const std::string& path) {
  const BioPtr bio = BioOf(text);
  X509Ptr certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (certificate == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("there is no PEM certificate in ", path));
  }
  return certificate;
}

absl::Status CheckTimes(const X509& certificate, const std::string& path) {
  if (X509_cmp_current_time(X509_get0_notAfter(&certificate)) <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("the certificate ", path, " has expired"));
  }
  if (X509_cmp_current_time(X509_get0_notBefore(&certificate)) > 0) {
    return absl::InvalidArgumentError(absl::StrCat("the certificate ", path, " is not valid yet"));
  }
  return absl::OkStatus();
}

absl::Time EndOf(const X509& certificate) {
  struct tm end {};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(&certificate), &end) != 1) return absl::InfiniteFuture();
  return absl::FromTM(end, absl::UTCTimeZone());
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid() ||
      ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TlsTexts> ReadTlsFiles(const TlsPaths& paths) {
  TlsTexts texts;
  BLOCKSWAP_ASSIGN_OR_RETURN(texts.certificate, ReadPem(paths.certificate, 0));
  BLOCKSWAP_ASSIGN_OR_RETURN(texts.key, ReadPem(paths.key, kForbiddenForKeys));
  BLOCKSWAP_ASSIGN_OR_RETURN(const X509Ptr certificate,
                             ParseCertificate(texts.certificate, paths.certificate));
  BLOCKSWAP_RETURN_IF_ERROR(CheckTimes(*certificate, paths.certificate));
  texts.certificate_end = EndOf(*certificate);
  const BioPtr bio = BioOf(texts.key);
  // A passphrase cannot be asked for: an empty answer makes an encrypted key an error.
  char no_passphrase[] = "";
  const KeyPtr key(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, no_passphrase));
  ERR_clear_error();
  if (key == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no PEM private key without a passphrase in ", paths.key));
  }
  const bool match = X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  if (!match) {
    return absl::InvalidArgumentError(
        absl::StrCat("the key ", paths.key, " is not that of the certificate ", paths.certificate));
  }
  if (!paths.client_ca.empty()) {
    BLOCKSWAP_ASSIGN_OR_RETURN(texts.client_ca, ReadPem(paths.client_ca, 0));
    BLOCKSWAP_ASSIGN_OR_RETURN(const X509Ptr ca,
                               ParseCertificate(texts.client_ca, paths.client_ca));
    BLOCKSWAP_RETURN_IF_ERROR(CheckTimes(*ca, paths.client_ca));
  }
  return texts;
}

absl::StatusOr<std::unique_ptr<TlsFiles>> TlsFiles::Start(TlsPaths paths, std::string directory,
                                                          std::chrono::milliseconds interval,
                                                          OnNew on_new) {
  std::unique_ptr<TlsFiles> files(
      new TlsFiles(std::move(paths), std::move(directory), std::move(on_new)));
  std::error_code ignored;
  fs::remove_all(files->directory_, ignored);  // of an earlier run
  BLOCKSWAP_RETURN_IF_ERROR(MakeDirectory(files->directory_, 0700));
  BLOCKSWAP_RETURN_IF_ERROR(files->Check());
  TlsFiles* self = files.get();
  files->thread_ = std::thread([self, interval] { self->Watch(interval); });
  return files;
}

TlsFiles::~TlsFiles() {
  {
    base::MutexLock lock(mutex_);
    stopped_ = true;
    stopped_changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
  std::error_code ignored;
  fs::remove_all(directory_, ignored);
}

TlsPaths TlsFiles::staged() const {
  const std::string current = absl::StrCat(directory_, "/current");
  TlsPaths staged{absl::StrCat(current, "/certificate.pem"), absl::StrCat(current, "/key.pem"), ""};
  if (!paths_.client_ca.empty()) staged.client_ca = absl::StrCat(current, "/client_ca.pem");
  return staged;
}

absl::Status TlsFiles::Stage(const TlsTexts& texts) {
  const std::string next = absl::StrCat(directory_, "/", version_ + 1);
  std::error_code error;
  fs::remove_all(next, error);
  BLOCKSWAP_RETURN_IF_ERROR(MakeDirectory(next, 0700));
  BLOCKSWAP_RETURN_IF_ERROR(WriteFile(absl::StrCat(next, "/certificate.pem"), texts.certificate));
  BLOCKSWAP_RETURN_IF_ERROR(WriteFile(absl::StrCat(next, "/key.pem"), texts.key));
  if (!texts.client_ca.empty()) {
    BLOCKSWAP_RETURN_IF_ERROR(WriteFile(absl::StrCat(next, "/client_ca.pem"), texts.client_ca));
  }
  // One rename changes all files: who reads meanwhile sees old ones or new ones.
  const std::string link = absl::StrCat(directory_, "/next");
  fs::remove(link, error);
  fs::create_symlink(absl::StrCat(version_ + 1), link, error);
  if (!error) fs::rename(link, absl::StrCat(directory_, "/current"), error);
  if (error)
    return absl::UnavailableError(absl::StrCat("cannot stage TLS files: ", error.message()));
  // The last version stays for a reader that is in the middle of it.
  fs::remove_all(absl::StrCat(directory_, "/", version_ - 1), error);
  ++version_;
  return absl::OkStatus();
}

absl::StatusOr<bool> TlsFiles::Take(const absl::StatusOr<TlsTexts>& texts) {
  absl::Status status = texts.status();
  const bool is_new = status.ok() && !(*texts == in_use_);
  if (is_new) status = Stage(*texts);
  if (!status.ok()) {
    const std::string complaint(status.message());
    if (version_ > 0 && complaint != complaint_) {
      LogError("TLS: {}; the certificate that was read before stays in use", complaint);
    }
    complaint_ = complaint;
    return status;
  }
  if (is_new && version_ > 1) LogInfo("TLS: {} was read again", paths_.certificate);
  complaint_.clear();
  if (is_new) in_use_ = *texts;
  return is_new;
}

absl::Status TlsFiles::Check() {
  const absl::StatusOr<TlsTexts> texts = ReadTlsFiles(paths_);
  bool is_new = false;
  {
    base::MutexLock lock(mutex_);
    BLOCKSWAP_ASSIGN_OR_RETURN(is_new, Take(texts));
  }
  if (is_new && on_new_ != nullptr) on_new_(texts->certificate_end);
  return absl::OkStatus();
}

void TlsFiles::Watch(std::chrono::milliseconds interval) {
  NameThisThread("tls-files");
  while (true) {
    {
      base::MutexLock lock(mutex_);
      const auto deadline = std::chrono::steady_clock::now() + interval;
      while (!stopped_ && stopped_changed_.WaitUntil(mutex_, deadline)) {
      }
      if (stopped_) return;
    }
    Check().IgnoreError();  // logged there
  }
}

}  // namespace blockswap::server
