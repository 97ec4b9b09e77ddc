// SPDX-License-Identifier: Apache-2.0
// What every command works with: where output goes, how it looks, and the connection to the server.
#ifndef BLOCKSWAP_CLIENT_CLI_SESSION_H_
#define BLOCKSWAP_CLIENT_CLI_SESSION_H_

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/cli/endpoint.h"
#include "client/cli/exit_code.h"
#include "client/cpp/errors.h"
#include "client/cpp/server_client.h"
#include "google/protobuf/message.h"
#include "offload/base/mutex.h"

namespace blockswap::cli {

// The world outside, so that tests can be it.
struct Surroundings {
  std::ostream* out = nullptr;  // data
  std::ostream* err = nullptr;  // messages and progress
  std::istream* in = nullptr;   // answers; null: nobody to ask
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  bool colour = false;
  int width = 80;                  // of the terminal
  Endpoint variables;              // BLOCKSWAP_CONTEXT, BLOCKSWAP_SERVER, ...
  std::string contexts_file;       // empty: there is none
  bool handles_interrupts = true;  // Ctrl-C detaches
};

Surroundings SystemSurroundings();

enum class Format { kTable, kWide, kJson, kJsonLines, kYaml, kName };

class Session final {
 public:
  Session(const Surroundings& surroundings, const Endpoint& flags, Format format)
      : surroundings_(surroundings), flags_(flags), format_(format) {}

  // The server and what it is shown, by flags, environment, context and default. NotFound: no such
  // context. InvalidArgument: the contexts file is none.
  absl::StatusOr<ResolvedEndpoint> FindEndpoint() const;

  // Connects at the first call. Cancelled after Interrupt.
  absl::StatusOr<client::ServerClient*> Client();
  // Ends every call to the server, now and later. Safe on any thread.
  void Interrupt();
  bool interrupted() const;

  std::ostream& out() const { return *surroundings_.out; }
  std::ostream& err() const { return *surroundings_.err; }
  const Surroundings& surroundings() const { return surroundings_; }
  Format format() const { return format_; }
  // Output is for programs: messages whole, in one of the three notations.
  bool structured() const {
    return format_ == Format::kJson || format_ == Format::kJsonLines || format_ == Format::kYaml;
  }
  int table_width() const { return surroundings_.out_is_terminal ? surroundings_.width : 0; }
  bool colour() const { return surroundings_.colour && surroundings_.out_is_terminal; }

  // REQUIRES: structured().
  void Print(const google::protobuf::Message& message) const;
  // The message for programs, `text` for people. Returns kOk.
  ExitCode Show(const google::protobuf::Message& message, const std::string& text) const;
  // One of many that are printed as they come: a line, or a document of YAML.
  void PrintItem(const google::protobuf::Message& message) const;
  // Prints the error with all its violations and what may help, and returns its exit code.
  ExitCode Fail(const absl::Status& status) const;
  // The same with violations that were found on this side already.
  ExitCode Fail(const std::string& message,
                const std::vector<client::FieldViolation>& violations) const;

 private:
  const Surroundings surroundings_;
  const Endpoint flags_;
  const Format format_;
  mutable base::Mutex mutex_;
  std::unique_ptr<client::ServerClient> client_ ABSL_GUARDED_BY(mutex_);
  bool interrupted_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace blockswap::cli

#endif  // BLOCKSWAP_CLIENT_CLI_SESSION_H_
