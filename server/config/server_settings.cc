// SPDX-License-Identifier: Apache-2.0
#include "server/config/server_settings.h"

#include <iterator>
#include <utility>

namespace blockswap::server {
namespace {

using setting::Bytes;
using setting::Count;
using setting::Days;
using setting::Level;
using setting::Names;
using setting::Rate;
using setting::Reloadable;
using setting::Seconds;
using setting::Switch;
using setting::Text;

// What is where, and who is served over HTTP.
std::vector<Setting> PlaceSettings() {
  return {
      Text("state_dir", &ServerConfig::state_dir, "database, locks and defaults of the roots"),
      Text("socket", &ServerConfig::socket, "Unix socket that clients connect to"),
      Text("http", &ServerConfig::http,
           "loopback address of /metrics, /healthz, /readyz; off: none"),
      Text("probes", &ServerConfig::probes,
           "address on any interface, of /metrics, /healthz, /readyz alone; default off"),
      Switch("web", &ServerConfig::web,
             "serve the page and the read-only /api/v1 on the http address, to all users of this "
             "machine"),
      Text("models", &ServerConfig::models, "root of weights; default <state-dir>/models"),
      Text("datasets", &ServerConfig::datasets, "root of datasets; default <state-dir>/datasets"),
      Text("outputs", &ServerConfig::outputs, "root of outputs; default <state-dir>/outputs"),
      Text("worker", &ServerConfig::worker,
           "the blockswap-worker program; default: beside blockswapd"),
  };
}

// Memory, devices, and what is measured of them.
std::vector<Setting> MemorySettings() {
  return {
      Bytes("host_budget", &ServerConfig::host_budget_bytes,
            "memory of the host device; default: half of what is available at the start"),
      Bytes("master_cache", &ServerConfig::master_cache_bytes,
            "memory for base weights kept between jobs; default: a quarter of what is available at "
            "the start"),
      Bytes("worker_memory_limit", &ServerConfig::worker_memory_limit_bytes,
            "memory of one worker, held by its control group where there are any; default: none"),
      Switch("http_optional", &ServerConfig::http_optional,
             "start without HTTP, with a warning, when its port is taken"),
      Switch(
          "gpu_health_metrics", &ServerConfig::gpu_health_metrics,
          "power, temperature, energy, clock and throttling of GPUs; false beside a DCGM exporter"),
      Text("dcgm_job_mapping_dir", &ServerConfig::dcgm_job_mapping_dir,
           "directory of a DCGM exporter's job mapping; default: none"),
      Switch("measure_links", &ServerConfig::measure_links,
             "measure the bus of each device once, at the first start"),
      Switch("offer_host", &ServerConfig::offer_host, "offer the host device beside GPUs, too"),
  };
}

// Jobs that wait, run and are remembered.
std::vector<Setting> QueueSettings() {
  return {
      Reloadable(Count("max_queued_jobs", &ServerConfig::max_queued_jobs,
                       "unfinished jobs that are accepted")),
      Reloadable(Count("max_finished_jobs", &ServerConfig::max_finished_jobs,
                       "finished jobs that are remembered; the oldest beyond it are forgotten")),
      Reloadable(Days("retention_days", &ServerConfig::retention_days,
                      "days after which finished jobs are forgotten, not what they wrote; 0: "
                      "never")),
      Text("templates", &ServerConfig::templates,
           "directory of job templates; default <state-dir>/templates"),
      Count("max_jobs_per_device", &ServerConfig::max_jobs_per_device,
            "jobs that may run on one device at a time, where its memory is enough for their plans",
            /*largest=*/16),
      Seconds("priority_aging", &ServerConfig::priority_aging_seconds,
              "seconds of waiting that count as much as a point of priority; 0: waiting counts "
              "for nothing"),
  };
}

// How long things may take.
std::vector<Setting> TimeSettings() {
  return {
      Seconds("stop_grace", &ServerConfig::stop_grace_seconds,
              "seconds for a last checkpoint when a job or the server stops"),
      Seconds("terminate_grace", &ServerConfig::terminate_grace_seconds,
              "seconds between SIGTERM and SIGKILL of a worker"),
      Seconds("retry_backoff", &ServerConfig::retry_backoff_seconds,
              "seconds before the first restart; doubles with each"),
      Seconds("attach_timeout", &ServerConfig::attach_timeout_seconds,
              "seconds a worker has to connect after its start"),
      Seconds("heartbeat_timeout", &ServerConfig::heartbeat_timeout_seconds,
              "seconds of silence after which a worker is ended"),
      Seconds("progress_timeout", &ServerConfig::progress_timeout_seconds,
              "seconds without a step (at least 20 median steps) after which a worker is ended"),
      Reloadable(Seconds("bookmark_interval", &ServerConfig::bookmark_seconds,
                         "seconds after which a silent watch gets a bookmark")),
  };
}

// Who may call, from where, and what workers may touch.
std::vector<Setting> AccessSettings() {
  return {
      Names("pass_environment", &ServerConfig::pass_environment,
            "names of environment variables that workers get, separated by commas"),
      Text("listen", &ServerConfig::listen,
           "TCP address beside the socket, HOST:PORT; needs tls_certificate and tls_key"),
      Text("tls_certificate", &ServerConfig::tls_certificate,
           "PEM certificate chain of the TCP listener, read again when it changes"),
      Text("tls_key", &ServerConfig::tls_key, "its PEM private key; mode 0600"),
      Text("tls_client_ca", &ServerConfig::tls_client_ca,
           "PEM certificates of the authorities that clients' certificates are verified with"),
      Switch("tls_require_client_certificate", &ServerConfig::tls_require_client_certificate,
             "refuse connections without a client certificate"),
      Switch("http_auth", &ServerConfig::http_auth,
             "HTTP, but for the two probes, needs the token of an operator or of a viewer of all "
             "tenants"),
      Text("audit_log", &ServerConfig::audit_log,
           "JSON lines of who changed what and who was refused; default <state-dir>/audit.jsonl; "
           "off: none"),
      Rate("tenant_calls_per_second", &ServerConfig::tenant_calls_per_second,
           "calls of one tenant's tokens and certificates; 0: no limit"),
      Count("tenant_streams", &ServerConfig::tenant_streams,
            "watches and logs of one tenant that may be open"),
      Text("confine_workers", &ServerConfig::confine_workers,
           "let workers open models, datasets and their own output only: auto (where the kernel "
           "can), required, off"),
      Text("socket_group", &ServerConfig::socket_group,
           "group whose members may use the socket, as admins; default: the server's user alone"),
      Names("client_identities", &ServerConfig::client_identities,
            "client certificates (URI or common name) and their rights, NAME=ROLE:TENANT, "
            "separated by commas"),
      Reloadable(Level("log_level", &ServerConfig::log_level,
                       "trace, debug, info, warning, error, critical, off")),
  };
}

}  // namespace

std::vector<Setting> ServerSettings() {
  std::vector<Setting> all;
  for (auto* group :
       {&PlaceSettings, &MemorySettings, &QueueSettings, &TimeSettings, &AccessSettings}) {
    std::vector<Setting> settings = group();
    all.insert(all.end(), std::make_move_iterator(settings.begin()),
               std::make_move_iterator(settings.end()));
  }
  return all;
}

}  // namespace blockswap::server
