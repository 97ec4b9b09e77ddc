// SPDX-License-Identifier: Apache-2.0
#include "client/cli/session.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "client/cli/json_output.h"
#include "proto/endpoint/default_endpoint.h"
#include "proto/text/utf8.h"

namespace blockswap::cli {

Surroundings SystemSurroundings() {
  Surroundings surroundings;
  surroundings.out = &std::cout;
  surroundings.err = &std::cerr;
  const char* term = std::getenv("TERM");
  const bool dumb = term != nullptr && std::string(term) == "dumb";
  surroundings.out_is_terminal = isatty(STDOUT_FILENO) == 1 && !dumb;
  surroundings.err_is_terminal = isatty(STDERR_FILENO) == 1 && !dumb;
  const char* no_colour = std::getenv("NO_COLOR");
  surroundings.colour = no_colour == nullptr || no_colour[0] == '\0';
  winsize size{};
  for (const int descriptor : {STDOUT_FILENO, STDERR_FILENO}) {
    if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) continue;
    surroundings.width = size.ws_col;
    break;
  }
  const char* server = std::getenv("BLOCKSWAP_SERVER");
  if (server != nullptr) surroundings.server_variable = server;
  return surroundings;
}

void Session::Interrupt() {
  base::MutexLock lock(mutex_);
  interrupted_ = true;
  if (client_ != nullptr) client_->Cancel();
}

bool Session::interrupted() const {
  base::MutexLock lock(mutex_);
  return interrupted_;
}

absl::StatusOr<client::ServerClient*> Session::Client() {
  base::MutexLock lock(mutex_);
  if (interrupted_) return absl::CancelledError("interrupted");
  if (client_ != nullptr) return client_.get();
  std::string target = server_;
  if (target.empty()) target = surroundings_.server_variable;
  if (target.empty()) target = proto::DefaultServerTarget();
  absl::StatusOr<std::unique_ptr<client::ServerClient>> client =
      client::ServerClient::Connect(target);
  if (!client.ok()) return client.status();
  client_ = *std::move(client);
  return client_.get();
}

void Session::PrintJson(const google::protobuf::Message& message) const {
  out() << ToJson(message, /*pretty=*/format_ == Format::kJson);
}

ExitCode Session::Fail(const absl::Status& status) const {
  const client::ErrorDetails details = client::DetailsOf(status);
  err() << "error: " << proto::ToPrintable(status.message());
  if (!details.reason.empty()) err() << " [" << proto::ToPrintable(details.reason) << "]";
  err() << "\n";
  for (const client::FieldViolation& violation : details.violations) {
    err() << "  " << proto::ToPrintable(violation.field) << ": "
          << proto::ToPrintable(violation.description) << "\n";
  }
  base::MutexLock lock(mutex_);
  if (status.code() == absl::StatusCode::kUnavailable && details.reason.empty() &&
      client_ != nullptr) {
    err() << "is blockswapd running? tried " << client_->target()
          << "; --server or BLOCKSWAP_SERVER names another socket\n";
  }
  return ExitCodeOf(status);
}

ExitCode Session::Fail(const std::string& message,
                       const std::vector<client::FieldViolation>& violations) const {
  err() << "error: " << proto::ToPrintable(message) << "\n";
  for (const client::FieldViolation& violation : violations) {
    err() << "  " << proto::ToPrintable(violation.field) << ": "
          << proto::ToPrintable(violation.description) << "\n";
  }
  return kError;
}

}  // namespace blockswap::cli
