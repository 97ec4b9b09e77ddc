// SPDX-License-Identifier: Apache-2.0
#include "server/store/schema.h"

#include <cstdint>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "server/base/reason.h"
#include "server/store/store_file.h"

namespace blockswap::server {
namespace {

// Migration i brings version i to i + 1. Never edit one that was released: append.
constexpr const char* kMigrations[] = {
    R"sql(
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
CREATE TABLE jobs (
  id TEXT PRIMARY KEY,
  uid TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  spec BLOB NOT NULL,
  spec_json TEXT NOT NULL,
  state INTEGER NOT NULL,
  state_reason TEXT NOT NULL,
  state_message TEXT NOT NULL,
  failure TEXT NOT NULL,
  progress TEXT NOT NULL,
  plan BLOB NOT NULL,
  plan_json TEXT NOT NULL,
  plan_text TEXT NOT NULL,
  needs TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  requested_device TEXT NOT NULL,
  device TEXT NOT NULL,
  create_micros INTEGER NOT NULL,
  start_micros INTEGER NOT NULL,
  end_micros INTEGER NOT NULL,
  update_micros INTEGER NOT NULL,
  version INTEGER NOT NULL,
  created_sequence INTEGER NOT NULL UNIQUE,
  output_directory TEXT NOT NULL,
  retry_of TEXT NOT NULL,
  warnings TEXT NOT NULL,
  labels TEXT NOT NULL,
  priority INTEGER NOT NULL,
  max_restarts INTEGER NOT NULL,
  stop_mode INTEGER NOT NULL,
  ready_micros INTEGER NOT NULL,
  out_of_memory_retried INTEGER NOT NULL,
  swap_override INTEGER NOT NULL
) STRICT;
CREATE INDEX jobs_by_state ON jobs (state, priority, created_sequence);
CREATE TABLE attempts (
  job_uid TEXT NOT NULL REFERENCES jobs (uid),
  number INTEGER NOT NULL,
  device TEXT NOT NULL,
  start_micros INTEGER NOT NULL,
  end_micros INTEGER NOT NULL,
  start_step INTEGER NOT NULL,
  end_step INTEGER NOT NULL,
  failure TEXT NOT NULL,
  counts_as_retry INTEGER NOT NULL,
  pid INTEGER NOT NULL,
  process_start_time INTEGER NOT NULL,
  boot_id TEXT NOT NULL,
  PRIMARY KEY (job_uid, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE events (
  sequence INTEGER PRIMARY KEY,
  type INTEGER NOT NULL,
  job_id TEXT NOT NULL,
  time_micros INTEGER NOT NULL,
  state INTEGER NOT NULL,
  reason TEXT NOT NULL,
  message TEXT NOT NULL,
  failure TEXT NOT NULL,
  attempt INTEGER NOT NULL
) STRICT;
CREATE INDEX events_by_job ON events (job_id, sequence);
CREATE TABLE request_ids (
  request_id TEXT PRIMARY KEY,
  hash BLOB NOT NULL,
  job_id TEXT NOT NULL,
  create_micros INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE checkpoints (
  job_uid TEXT NOT NULL REFERENCES jobs (uid),
  step INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  create_micros INTEGER NOT NULL,
  directory TEXT NOT NULL,
  manifest_sha256 TEXT NOT NULL,
  PRIMARY KEY (job_uid, step)
) STRICT, WITHOUT ROWID;
CREATE TABLE metric_points (
  job_uid TEXT NOT NULL REFERENCES jobs (uid),
  step INTEGER NOT NULL,
  loss REAL, learning_rate REAL, grad_norm REAL, seconds REAL,
  h2d_bytes INTEGER NOT NULL,
  stall_seconds REAL,
  device_bytes_peak INTEGER NOT NULL,
  PRIMARY KEY (job_uid, step)
) STRICT, WITHOUT ROWID;
)sql",
    R"sql(
CREATE TABLE device_links (
  device_key TEXT PRIMARY KEY,
  h2d REAL NOT NULL, d2h REAL NOT NULL,
  duplex_h2d REAL NOT NULL, duplex_d2h REAL NOT NULL,
  pageable REAL NOT NULL,
  duplex_factor REAL NOT NULL,
  latency_seconds REAL NOT NULL,
  measured_micros INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
)sql",
    // Lists and passes of the scheduler read indices, however many finished jobs there are: the
    // states 8, 9 and 10 are terminal, 1 and 6 wait (server/jobs/job.h).
    R"sql(
ALTER TABLE jobs ADD COLUMN held INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN deadline_micros INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN template_name TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN from_checkpoint TEXT NOT NULL DEFAULT '';
DROP INDEX jobs_by_state;
CREATE INDEX jobs_by_state ON jobs (state, created_sequence);
CREATE INDEX jobs_active ON jobs (created_sequence) WHERE state NOT IN (8, 9, 10);
CREATE INDEX jobs_terminal ON jobs (created_sequence) WHERE state IN (8, 9, 10);
CREATE INDEX jobs_waiting ON jobs (priority DESC, created_sequence, id, state, state_reason,
  requested_device, needs, held, create_micros, ready_micros, deadline_micros)
  WHERE state IN (1, 6);
CREATE INDEX jobs_with_deadline ON jobs (deadline_micros)
  WHERE deadline_micros > 0 AND state NOT IN (8, 9, 10);
CREATE INDEX jobs_by_id ON jobs (id, created_sequence);
CREATE INDEX jobs_by_name ON jobs (name, created_sequence);
CREATE INDEX jobs_by_reason ON jobs (state_reason, created_sequence);
CREATE INDEX jobs_by_priority ON jobs (priority, created_sequence);
CREATE INDEX jobs_by_create_time ON jobs (create_micros, created_sequence);
CREATE INDEX jobs_by_update_time ON jobs (update_micros, created_sequence);
CREATE INDEX jobs_by_end_time ON jobs (end_micros, created_sequence);
CREATE INDEX jobs_by_retry_of ON jobs (retry_of, created_sequence) WHERE retry_of <> '';
CREATE INDEX jobs_by_template ON jobs (template_name, created_sequence) WHERE template_name <> '';
CREATE TABLE job_labels (
  key TEXT NOT NULL,
  value TEXT NOT NULL,
  created_sequence INTEGER NOT NULL,
  job_uid TEXT NOT NULL REFERENCES jobs (uid),
  PRIMARY KEY (key, value, created_sequence)
) STRICT, WITHOUT ROWID;
CREATE INDEX job_labels_by_job ON job_labels (job_uid);
INSERT INTO job_labels SELECT label.key, label.value, created_sequence, uid
  FROM jobs, json_each(jobs.labels) AS label;
CREATE INDEX events_deleted ON events (time_micros) WHERE type = 10;
CREATE INDEX request_ids_by_age ON request_ids (create_micros);
)sql",
    // What a later server needs to adopt the attempt's worker.
    R"sql(
ALTER TABLE attempts ADD COLUMN socket TEXT NOT NULL DEFAULT '';
ALTER TABLE attempts ADD COLUMN token_hash TEXT NOT NULL DEFAULT '';
ALTER TABLE attempts ADD COLUMN last_sequence INTEGER NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN granted_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN checkpoint_seconds REAL NOT NULL DEFAULT 0;
)sql",
    R"sql(
CREATE TABLE tokens (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  hash BLOB NOT NULL UNIQUE,
  name TEXT NOT NULL,
  role TEXT NOT NULL,
  tenant TEXT NOT NULL,
  create_micros INTEGER NOT NULL,
  expire_micros INTEGER NOT NULL,
  last_used_micros INTEGER NOT NULL,
  revoke_micros INTEGER NOT NULL
) STRICT;
ALTER TABLE jobs ADD COLUMN tenant TEXT NOT NULL DEFAULT 'default';
CREATE INDEX jobs_by_tenant ON jobs (tenant, created_sequence);
)sql",
};

}  // namespace

int CurrentSchemaVersion() { return static_cast<int>(std::size(kMigrations)); }

absl::Status MigrateSchema(Database& database, const std::string& path) {
  auto query = database.Prepare("PRAGMA user_version");
  BLOCKSWAP_RETURN_IF_ERROR(query.Step().status());
  const int64_t found = query.Int(0);
  query.Reset();
  const int64_t current = CurrentSchemaVersion();
  if (found > current) {
    return WithReason(
        absl::FailedPreconditionError(absl::StrCat(
            "the state store ", path, " was written by a newer blockswapd (schema ", found,
            ", this one knows ", current, "); start that version, or restore the copy ", path,
            ".v<N>.bak it made before it migrated")),
        kStoreTooNew);
  }
  if (found > 0 && found < current) {
    BLOCKSWAP_RETURN_IF_ERROR(CopyStore(database, absl::StrCat(path, ".v", found, ".bak")));
  }
  for (int64_t version = found; version < current; ++version) {
    BLOCKSWAP_ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(database));
    BLOCKSWAP_RETURN_IF_ERROR(database.Execute(kMigrations[version]));
    BLOCKSWAP_RETURN_IF_ERROR(database.Execute(absl::StrCat("PRAGMA user_version=", version + 1)));
    BLOCKSWAP_RETURN_IF_ERROR(transaction.Commit());
  }
  return absl::OkStatus();
}

}  // namespace blockswap::server
