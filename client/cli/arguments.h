// SPDX-License-Identifier: Apache-2.0
// The command line of `blockswap` as a plain value.
#ifndef BLOCKSWAP_CLIENT_CLI_ARGUMENTS_H_
#define BLOCKSWAP_CLIENT_CLI_ARGUMENTS_H_

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/cli/job_source.h"
#include "client/cli/session.h"

namespace blockswap::cli {

struct Arguments {
  std::string command;  // "submit", "server info"
  Endpoint endpoint;    // what the flags say
  Format format = Format::kTable;
  bool colour = true;

  JobSource source;                                   // submit, plan, validate; update: overrides
  std::string id;                                     // submit, retry
  bool follow = false;                                // submit, logs
  bool wait = false;                                  // submit
  bool dry_run = false;                               // submit
  std::string device_profile;                         // plan
  bool quiet = false;                                 // submit
  std::vector<std::string> columns;                   // of tables; empty: the usual ones
  std::vector<std::string> jobs;                      // ids or their beginnings
  std::string checkpoint = "latest";                  // retry; checkpoints get and delete: a step
  std::string device;                                 // devices drain, undrain
  bool outputs = false;                               // delete
  bool yes = false;                                   // delete, checkpoints delete, token revoke
  absl::Duration every = absl::Seconds(2);            // top
  bool once = false;                                  // top
  std::string shell;                                  // completion
  bool all = false;                                   // list
  std::string state;                                  // list
  std::vector<std::string> labels;                    // list
  bool now = false;                                   // cancel
  std::string reason;                                 // cancel, drain, queue pause
  std::string etag;                                   // update, delete
  std::string wait_for = "terminal";                  // wait
  absl::Duration timeout = absl::InfiniteDuration();  // wait
  std::optional<int64_t> tail;                        // logs
  int attempt = 0;                                    // logs
  std::string token;                                  // token revoke: number or name
  std::string role, tenant, token_name;               // token create
  absl::Duration expires = absl::InfiniteDuration();  // token create
  std::string token_output;                           // token create: file for the secret
  std::string context;                                // context use, add, remove
  bool replace = false;                               // context add
  bool origin = false;                                // config view
  bool csv = false;                                   // metrics
  std::vector<std::string> series;                    // metrics
};

// Nothing when there is no command to run: help was printed to `out` or a usage error to `err`, and
// `*exit_code` says which.
std::optional<Arguments> ParseArguments(const std::vector<std::string>& words, std::ostream& out,
                                        std::ostream& err, int* exit_code);

}  // namespace blockswap::cli

#endif  // BLOCKSWAP_CLIENT_CLI_ARGUMENTS_H_
