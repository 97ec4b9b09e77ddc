// SPDX-License-Identifier: Apache-2.0
// All settings of blockswapd with their defaults, from flags and a TOML file.
#ifndef BLOCKSWAP_SERVER_CONFIG_SERVER_CONFIG_H_
#define BLOCKSWAP_SERVER_CONFIG_SERVER_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace blockswap::server {

struct ServerConfig {
  std::string state_dir;                  // $XDG_STATE_HOME/blockswap
  std::string socket;                     // $XDG_RUNTIME_DIR/blockswap/blockswapd.sock
  std::string http = "127.0.0.1:9464";    // port 0: any; "off": none
  std::string models, datasets, outputs;  // roots; below state_dir by default
  std::string worker;                     // blockswap-worker beside blockswapd
  int64_t host_budget_bytes = 0;  // of the host device; 0: half of what is available at start
  // Of base weights that no running job uses, kept for the next; below 0: a quarter of what is
  // available at start.
  int64_t master_cache_bytes = -1;
  bool measure_links = true;      // once for each device, by a short worker process at the start
  bool offer_host = false;        // beside GPUs; without a GPU it is always offered
  int64_t max_queued_jobs = 10000;
  double stop_grace_seconds = 30;  // for a checkpoint, when a job is cancelled or the server stops
  double terminate_grace_seconds = 10;  // between SIGTERM and SIGKILL
  double retry_backoff_seconds = 1;
  double attach_timeout_seconds = 60, heartbeat_timeout_seconds = 30,
         progress_timeout_seconds = 120;
  double bookmark_seconds = 15;
  std::vector<std::string> pass_environment = {"HOME", "PATH", "TZ", "LD_LIBRARY_PATH"};
  std::string log_level = "info";
  bool print_help = false, print_version = false;
};

// Flags over file over defaults. InvalidArgument names the flag or the key with its line, and the
// nearest one there is.
absl::StatusOr<ServerConfig> LoadServerConfig(const std::vector<std::string>& arguments,
                                              const std::string& program_path);

std::string ServerConfigHelp();

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_CONFIG_SERVER_CONFIG_H_
