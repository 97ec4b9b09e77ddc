// SPDX-License-Identifier: Apache-2.0
#include "client/cli/session.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "client/cli/contexts.h"
#include "client/cli/json_output.h"
#include "client/cpp/endpoint_files.h"
#include "offload/base/status_macros.h"
#include "proto/text/utf8.h"

namespace blockswap::cli {
namespace {

absl::StatusOr<client::ConnectOptions> ReadFiles(const Endpoint& endpoint) {
  client::ConnectOptions options;
  options.target = endpoint.server;
  if (!endpoint.token_file.empty()) {
    BLOCKSWAP_ASSIGN_OR_RETURN(options.token, client::ReadTokenFile(endpoint.token_file));
  }
  if (!endpoint.tls_ca.empty()) {
    BLOCKSWAP_ASSIGN_OR_RETURN(options.authority, client::ReadPemFile(endpoint.tls_ca));
  }
  if (!endpoint.tls_cert.empty()) {
    BLOCKSWAP_ASSIGN_OR_RETURN(options.certificate, client::ReadPemFile(endpoint.tls_cert));
  }
  if (!endpoint.tls_key.empty()) {
    BLOCKSWAP_ASSIGN_OR_RETURN(options.key, client::ReadPemFile(endpoint.tls_key));
  }
  return options;
}

}  // namespace

Surroundings SystemSurroundings() {
  Surroundings surroundings;
  surroundings.out = &std::cout;
  surroundings.err = &std::cerr;
  if (isatty(STDIN_FILENO) == 1) surroundings.in = &std::cin;
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
  for (const EndpointSetting& setting : EndpointSettings()) {
    const char* value = std::getenv(setting.variable);
    if (value != nullptr) surroundings.variables.*setting.field = value;
  }
  surroundings.contexts_file = DefaultContextsFile();
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

absl::StatusOr<ResolvedEndpoint> Session::FindEndpoint() const {
  BLOCKSWAP_ASSIGN_OR_RETURN(const Contexts contexts, ReadContexts(surroundings_.contexts_file));
  return ResolveEndpoint(flags_, surroundings_.variables, contexts);
}

absl::StatusOr<client::ServerClient*> Session::Client() {
  base::MutexLock lock(mutex_);
  if (interrupted_) return absl::CancelledError("interrupted");
  if (client_ != nullptr) return client_.get();
  const absl::StatusOr<ResolvedEndpoint> endpoint = FindEndpoint();
  if (!endpoint.ok()) return endpoint.status();
  const absl::StatusOr<client::ConnectOptions> options = ReadFiles(endpoint->endpoint);
  if (!options.ok()) return options.status();
  absl::StatusOr<std::unique_ptr<client::ServerClient>> client =
      client::ServerClient::Connect(*options);
  if (!client.ok()) return client.status();
  client_ = *std::move(client);
  return client_.get();
}

void Session::Print(const google::protobuf::Message& message) const {
  out() << (format_ == Format::kYaml ? ToYaml(message)
                                     : ToJson(message, /*pretty=*/format_ == Format::kJson));
}

ExitCode Session::Show(const google::protobuf::Message& message, const std::string& text) const {
  if (structured()) {
    Print(message);
  } else {
    out() << text;
  }
  return kOk;
}

void Session::PrintItem(const google::protobuf::Message& message) const {
  out() << (format_ == Format::kYaml ? "---\n" + ToYaml(message)
                                     : ToJson(message, /*pretty=*/false));
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
          << "; --server or BLOCKSWAP_SERVER names another server\n";
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
