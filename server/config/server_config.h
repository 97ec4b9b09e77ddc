// SPDX-License-Identifier: Apache-2.0
// All settings of blockswapd with their defaults, from flags and a TOML file.
#ifndef BLOCKSWAP_SERVER_CONFIG_SERVER_CONFIG_H_
#define BLOCKSWAP_SERVER_CONFIG_SERVER_CONFIG_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "offload/base/host_facts.h"

namespace blockswap::server {

enum class SettingOrigin { kDefault, kFile, kFlag };

struct ServerConfig {
  std::string state_dir;                  // $XDG_STATE_HOME/blockswap
  std::string socket;                     // $XDG_RUNTIME_DIR/blockswap/blockswapd.sock
  std::string http = "127.0.0.1:9464";    // port 0: any; "off": none
  std::string probes = "off";             // of /metrics, /healthz, /readyz on any interface
  bool web = true;                        // the page and /api/v1 on the http address
  std::string models, datasets, outputs;  // roots; below state_dir by default
  std::string worker;                     // blockswap-worker beside blockswapd
  int64_t host_budget_bytes = 0;  // of the host device; 0: half of what is available at start
  // Of base weights that no running job uses, kept for the next; below 0: a quarter of what is
  // available at start.
  int64_t master_cache_bytes = -1;
  int64_t worker_memory_limit_bytes = 0;  // of a worker's control group; 0: none
  bool http_optional = false;  // a taken HTTP port is a warning
  bool gpu_health_metrics = true;    // off where a DCGM exporter has the same figures
  std::string dcgm_job_mapping_dir;  // where a DCGM exporter reads which job runs on which GPU
  bool measure_links = true;  // once for each device, by a short worker process at the start
  std::string gpu_library = "libnvidia-ml.so.1";  // tests give one of their own
  bool offer_host = false;    // beside GPUs; without a GPU it is always offered
  int64_t max_queued_jobs = 10000;
  int64_t max_jobs_per_device = 1;       // more share its memory by what their plans need
  double priority_aging_seconds = 3600;  // of waiting that count as a point of priority; 0: none
  double stop_grace_seconds = 30;  // for a checkpoint, when a job is cancelled or the server stops
  double terminate_grace_seconds = 10;  // between SIGTERM and SIGKILL
  double retry_backoff_seconds = 10;
  double attach_timeout_seconds = 60, heartbeat_timeout_seconds = 30,
         progress_timeout_seconds = 120;
  double bookmark_seconds = 15;
  // TCP beside the socket: only with TLS, also on loopback. Callers need a token or a certificate.
  std::string listen;  // "0.0.0.0:7543"; empty: none
  std::string tls_certificate, tls_key, tls_client_ca;
  bool tls_require_client_certificate = false;
  bool http_auth = false;  // HTTP takes the token of an operator, or of a viewer of all tenants
  std::string audit_log;  // <state-dir>/audit.jsonl; "off": none
  double tenant_calls_per_second = 100;  // of callers with tokens or certificates; 0: no limit
  int64_t tenant_streams = 64;
  std::string confine_workers = "auto";  // by Landlock: auto, required, off
  std::string socket_group;  // a group whose members may use the socket, too; empty: none
  // Names of client certificates and what they may do: "spiffe://site/ci=submitter:vision".
  std::vector<std::string> client_identities;
  std::vector<std::string> pass_environment = {"HOME", "PATH", "TZ", "LD_LIBRARY_PATH"};
  std::string log_level = "info";
  std::string templates;               // job templates, one file each; below state_dir by default
  double retention_days = 30;          // finished jobs are forgotten after so long; 0: never
  int64_t max_finished_jobs = 100000;  // the oldest beyond it are forgotten
  bool print_help = false, print_version = false;
  // Where what is left of the host's memory is read: no setting, tests give files of their own.
  base::HostFactsPaths host_files;

  // Where it came from, so that it can be read again.
  std::string file;                              // empty: none
  std::map<std::string, SettingOrigin> origins;  // by key; absent: default
  std::vector<std::string> arguments;
  std::string program_path;
};

// One setting as text, for people and for comparison.
struct SettingValue {
  std::string key, value, help;
  SettingOrigin origin = SettingOrigin::kDefault;
  bool reloadable = false;  // a new value takes effect without a restart
};

// Flags over file over defaults. InvalidArgument names the flag or the key with its line, and the
// nearest one there is.
absl::StatusOr<ServerConfig> LoadServerConfig(const std::vector<std::string>& arguments,
                                              const std::string& program_path);

// The same file and flags as they are now.
absl::StatusOr<ServerConfig> ReloadServerConfig(const ServerConfig& config);

// All of them, in the order of the help.
std::vector<SettingValue> ListSettings(const ServerConfig& config);

// Value and origin of one setting. InvalidArgument: no such key.
absl::Status CopySetting(const std::string& key, const ServerConfig& from, ServerConfig& to);

std::string ServerConfigHelp();

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_CONFIG_SERVER_CONFIG_H_
