-- SPDX-License-Identifier: Apache-2.0
-- A state store as its first version left it: the schema that created it, with a job that is done, one that runs after a crash
-- and one that waits.
PRAGMA journal_mode=WAL;
BEGIN;
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
INSERT INTO meta VALUES ('epoch', CAST('epoch-of-version-1' AS BLOB)), ('secret', x'00112233445566778899AABBCCDDEEFF');
INSERT INTO jobs VALUES (
  'digits-0001', 'uid-1', 'digits', x'0A06646967697473', '{"name":"digits"}', 8, 'DONE', 'trained 4 of 4 steps', '', '{"device_bytes":0,"epoch":1,"eta_seconds":0.0,"grad_norm":0.0,"last_progress_micros":1700000000000050,"learning_rate":0.0,"loss":0.25,"phase":"finishing","seconds_per_step":0.0,"stall_ratio":0.0,"step":4,"total_steps":4}', x'', '{"fake":true}', 'a plan', '{"architecture":"qwen_image","blocks_to_swap":2,"device_bytes":1048576,"disk_bytes":4096,"host_bytes":2097152,"max_blocks_to_swap":7}', 1, 'auto', 'host', 1700000000000000, 1700000000000010, 1700000000000060, 1700000000000060, 6, 1, '/outputs/digits-0001', '', '["a warning"]', '{"owner":"Zoë"}', 0, 3, 0, 0, 0, -1);
INSERT INTO jobs VALUES (
  'crash-0002', 'uid-2', 'crash', x'0A056372617368', '{"name":"crash"}', 3, 'TRAINING', 'attempt 2 trains on host', '', '{"device_bytes":0,"epoch":1,"eta_seconds":0.0,"grad_norm":0.0,"last_progress_micros":0,"learning_rate":0.0,"loss":null,"phase":"training","seconds_per_step":0.0,"stall_ratio":0.0,"step":3,"total_steps":9}', x'', '{"fake":true}', 'a plan', '{"architecture":"qwen_image","blocks_to_swap":2,"device_bytes":1048576,"disk_bytes":4096,"host_bytes":2097152,"max_blocks_to_swap":7}', 2, 'auto', 'host', 1700000000000001, 1700000000000070, 0, 1700000000000090, 9, 4, '/outputs/crash-0002', '', '[]', '{}', 5, 3, 0, 0, 0, -1);
INSERT INTO jobs VALUES (
  'later-0003', 'uid-3', 'later', x'0A056C61746572', '{"name":"later"}', 1, 'WAITING_FOR_DEVICE', 'device host is held by job crash-0002', '', '{"device_bytes":0,"epoch":0,"eta_seconds":0.0,"grad_norm":0.0,"last_progress_micros":0,"learning_rate":0.0,"loss":0.0,"phase":"","seconds_per_step":0.0,"stall_ratio":0.0,"step":0,"total_steps":0}', x'', '', '', '{"architecture":"qwen_image","blocks_to_swap":2,"device_bytes":1048576,"disk_bytes":4096,"host_bytes":2097152,"max_blocks_to_swap":7}', 0, 'auto', '', 1700000000000002, 0, 0, 1700000000000095, 2, 6, '/outputs/later-0003', '', '[]', '{}', 0, 3, 0, 0, 0, -1);
INSERT INTO attempts VALUES
  ('uid-1', 1, 'host', 1700000000000010, 1700000000000060, 0, 4, '', 0, 101, 5001, 'boot-1'),
  ('uid-2', 1, 'host', 1700000000000065, 1700000000000070, 0, 3, '{"category":10,"exit_code":0,"message":"killed by signal 9","reason":"WORKER_SIGNALLED","retryable":true,"signal":9,"step":3}', 1, 102, 5002, 'boot-1'),
  ('uid-2', 2, 'host', 1700000000000071, 0, 2, 3, '', 0, 103, 5003, 'boot-1');
INSERT INTO events VALUES
  (1, 3, 'digits-0001', 1700000000000000, 1, '', '', '', 0),
  (2, 4, 'digits-0001', 1700000000000010, 3, 'TRAINING', 'attempt 1 trains on host', '', 1),
  (3, 4, 'digits-0001', 1700000000000060, 8, 'DONE', 'trained 4 of 4 steps', '', 1),
  (4, 3, 'crash-0002', 1700000000000001, 1, '', '', '', 0),
  (5, 4, 'crash-0002', 1700000000000070, 6, 'WORKER_SIGNALLED', 'killed by signal 9', '{"category":10,"exit_code":0,"message":"killed by signal 9","reason":"WORKER_SIGNALLED","retryable":true,"signal":9,"step":3}', 1),
  (6, 3, 'later-0003', 1700000000000002, 1, '', '', '', 0);
INSERT INTO request_ids VALUES ('request-1', CAST('hash of request-1' AS BLOB), 'digits-0001', 1700000000000000);
INSERT INTO checkpoints VALUES ('uid-1', 4, 4096, 1700000000000055, '/outputs/digits-0001/checkpoints/step-00000004', 'abcd'),
  ('uid-2', 2, 2048, 1700000000000066, '/outputs/crash-0002/checkpoints/step-00000002', 'ef01');
INSERT INTO metric_points VALUES ('uid-1', 3, 0.5, 0.001, 1.5, 0.25, 1000, 0.125, 4096),
  ('uid-1', 4, NULL, 0.001, NULL, 0.25, 2000, 0.125, 4096);
PRAGMA user_version=1;
COMMIT;
