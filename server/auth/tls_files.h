// SPDX-License-Identifier: Apache-2.0
// Certificate and key of the TCP listener: checked, staged for gRPC, and exchanged while it runs.
#ifndef BLOCKSWAP_SERVER_AUTH_TLS_FILES_H_
#define BLOCKSWAP_SERVER_AUTH_TLS_FILES_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "offload/base/mutex.h"

namespace blockswap::server {

struct TlsPaths {
  std::string certificate;  // PEM chain, the server's first
  std::string key;          // PEM; nobody but owner and group may read it
  std::string client_ca;    // PEM; empty: clients show no certificate
};

// PEM texts that belong together.
struct TlsTexts {
  std::string certificate, key, client_ca;
  absl::Time certificate_end;  // after which nobody takes it
  bool operator==(const TlsTexts&) const = default;
};

// InvalidArgument says which file and why: not PEM, a key of another certificate, not valid now, a
// key that others may read or change. NotFound: missing.
absl::StatusOr<TlsTexts> ReadTlsFiles(const TlsPaths& paths);

// gRPC's own watcher takes whatever lies in the files, also half of an exchange; so it is pointed
// at copies that change only all together and only for the better. Owns: a thread that looks every
// `interval`, and the copies. Thread safety: safe.
class TlsFiles final {
 public:
  // When the certificate in use ends: told at the start and with each new one, by the thread that
  // looked.
  using OnNew = std::function<void(absl::Time certificate_end)>;
  // The copies are made below `directory`, which must be private to the server. The errors of
  // ReadTlsFiles: a server does not start with files that do not serve.
  static absl::StatusOr<std::unique_ptr<TlsFiles>> Start(
      TlsPaths paths, std::string directory,
      std::chrono::milliseconds interval = std::chrono::seconds(10), OnNew on_new = nullptr);
  ~TlsFiles();

  // What gRPC reads; client_ca is empty without one.
  TlsPaths staged() const;
  // Looks now. New files that do not serve are logged once, and the ones in use stay.
  absl::Status Check();

 private:
  TlsFiles(TlsPaths paths, std::string directory, OnNew on_new)
      : paths_(std::move(paths)), directory_(std::move(directory)), on_new_(std::move(on_new)) {}
  absl::Status Stage(const TlsTexts& texts) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // True when they were new.
  absl::StatusOr<bool> Take(const absl::StatusOr<TlsTexts>& texts)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Watch(std::chrono::milliseconds interval);

  const TlsPaths paths_;
  const std::string directory_;
  const OnNew on_new_;
  base::Mutex mutex_;  // also held while files are written: only the watch and Check wait for it
  base::CondVar stopped_changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  TlsTexts in_use_ ABSL_GUARDED_BY(mutex_);
  std::string complaint_ ABSL_GUARDED_BY(mutex_);  // the last one logged
  int version_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_AUTH_TLS_FILES_H_
