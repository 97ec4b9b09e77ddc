# SPDX-License-Identifier: Apache-2.0
"""A gRPC client in another language: calls, watches and their errors, against a real blockswapd over its Unix socket."""

import json
import math
import pathlib
import re
import shutil
import subprocess
import time
import uuid

import grpc
import pytest
from google.protobuf import json_format
from google.rpc import error_details_pb2, status_pb2

import digits_example
from daemon_process import START_SECONDS

JOB_SECONDS = 120
ADAPTER = "digits-lora.safetensors"


@pytest.fixture(scope="module")
def submit(training, api):
    def create(name, request_id=None, **settings):
        spec = json_format.ParseDict(digits_example.job_spec(name, **settings), api.job.JobSpec())
        request = api.training.CreateJobRequest(spec=spec, request_id=request_id or str(uuid.uuid4()))
        return training.CreateJob(request, timeout=30)

    return create


@pytest.fixture(scope="module")
def finished_job(submit, training, api):
    """Returns (the job after it ended, the events of its whole life)."""
    job = submit("digits")
    events = list(training.WatchJobs(api.training.WatchJobsRequest(job=job.name), timeout=JOB_SECONDS))
    return training.GetJob(api.training.GetJobRequest(name=job.name), timeout=10), events


def details(error):
    """Returns (ErrorInfo, BadRequest) of a failed call's status trailer; each is empty where it is absent."""
    trailer = dict(error.trailing_metadata())["grpc-status-details-bin"]
    info, violations = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    for detail in status_pb2.Status.FromString(trailer).details:
        detail.Unpack(info)
        detail.Unpack(violations)
    return info, violations


def stored(events, api):
    """The events that the log keeps: progress, snapshots, bookmarks and ends are not stored."""
    types_of_log = ("CREATED", "STATE_CHANGED", "PLAN_READY", "CHECKPOINT_COMMITTED", "SAMPLE_READY", "WARNING")
    kept = {getattr(api.event.JobEvent, f"TYPE_{name}") for name in types_of_log}
    return [event for event in events if event.type in kept]


def test_server_says_what_it_is(daemon, api):
    info = api.admin_stub(daemon.channel).GetServerInfo(api.admin.GetServerInfoRequest(), timeout=10)
    assert re.match(r"\d+\.\d+\.\d+", info.version)
    assert "qwen_image" in info.architectures
    assert pathlib.Path(info.models_root) == daemon.state / "models"


def test_submitted_job_is_watched_to_its_end(finished_job, api):
    job, events = finished_job
    assert job.state == api.event.JOB_STATE_SUCCEEDED, f"{job.failure}\n{job.state_message}"
    assert events[-1].type == api.event.JobEvent.TYPE_END
    assert events[-1].end_reason == api.event.JobEvent.END_REASON_JOB_TERMINAL
    log = stored(events, api)
    assert [event.sequence for event in log] == sorted({event.sequence for event in log})
    states = [event.state for event in log if event.type == api.event.JobEvent.TYPE_STATE_CHANGED]
    assert states[-1] == api.event.JOB_STATE_SUCCEEDED
    assert api.event.JOB_STATE_RUNNING in states


def test_finished_job_left_its_adapter_and_its_losses(finished_job, training, api):
    job, _ = finished_job
    assert (pathlib.Path(job.output_directory) / ADAPTER).stat().st_size > 0
    request = api.training.ListMetricPointsRequest(name=job.name, series=["loss"])
    (series,) = training.ListMetricPoints(request, timeout=10).series
    assert [point.step for point in series.points] == [1, 2, 3]
    assert all(math.isfinite(point.value) and point.value > 0 for point in series.points)


def test_watch_goes_on_after_a_resume_token(finished_job, training, api):
    job, events = finished_job
    log = stored(events, api)
    middle = log[len(log) // 2]
    request = api.training.WatchJobsRequest(job=job.name, resume_token=middle.resume_token)
    again = list(training.WatchJobs(request, timeout=30))
    assert [e.sequence for e in stored(again, api)] == [e.sequence for e in log if e.sequence > middle.sequence]
    assert again[-1].type == api.event.JobEvent.TYPE_END


def test_log_of_a_finished_job_ends(finished_job, training, api):
    job, _ = finished_job
    chunks = list(training.StreamJobLogs(api.training.StreamJobLogsRequest(name=job.name, offset=0), timeout=30))
    text = b"".join(chunk.text for chunk in chunks)
    assert text
    assert chunks[-1].end == api.event.JobEvent.END_REASON_JOB_TERMINAL
    half = len(text) // 2
    rest = list(training.StreamJobLogs(api.training.StreamJobLogsRequest(name=job.name, offset=half), timeout=30))
    assert b"".join(chunk.text for chunk in rest) == text[half:]


def test_second_job_on_the_same_base_finds_its_weights_in_memory(finished_job, submit, daemon, training, api):
    def log_of(job):
        chunks = training.StreamJobLogs(api.training.StreamJobLogsRequest(name=job.name, offset=0), timeout=30)
        return b"".join(chunk.text for chunk in chunks).decode()

    second = submit("again")
    for _ in training.WatchJobs(api.training.WatchJobsRequest(job=second.name), timeout=JOB_SECONDS):
        pass
    shared = r"weights shared with other jobs: (\S+ \S+) read for all, (\S+ \S+) found in memory"
    first_read, first_found = re.search(shared, log_of(finished_job[0])).groups()
    second_read, second_found = re.search(shared, log_of(second)).groups()
    assert (first_found, second_read) == ("0 B", "0 B")
    assert second_found == first_read
    states = re.findall(r'^blockswap_shared_master_bytes\{state="(\w+)"\} (\S+)$', daemon.metrics(), re.MULTILINE)
    assert {state for state, _ in states} == {"used", "unused"}
    assert sum(float(size) for _, size in states) > 0


def test_running_job_is_cancelled(submit, training, api):
    job = submit("endless", steps=1_000_000)
    watch = training.WatchJobs(api.training.WatchJobsRequest(job=job.name), timeout=JOB_SECONDS)
    for event in watch:
        if event.progress.step >= 1:
            break
    training.CancelJob(api.training.CancelJobRequest(name=job.name), timeout=10)
    last = None
    for last in watch:
        pass
    assert last.type == api.event.JobEvent.TYPE_END
    job = training.GetJob(api.training.GetJobRequest(name=job.name), timeout=10)
    assert job.state == api.event.JOB_STATE_CANCELLED
    assert list((pathlib.Path(job.output_directory) / "checkpoints").glob("step-*"))


def update_memory(training, api, name, mask, etag="", **memory):
    job = api.training.Job(name=name, etag=etag, spec=json_format.ParseDict({"memory": memory}, api.job.JobSpec()))
    request = api.training.UpdateJobRequest(job=job)
    request.update_mask.paths.extend(mask)
    return training.UpdateJob(request, timeout=30)


def test_running_job_takes_new_memory_settings(submit, training, api, daemon, programs):
    job = submit("elastic", steps=1_000_000)
    watch = training.WatchJobs(api.training.WatchJobsRequest(job=job.name), timeout=JOB_SECONDS)
    for event in watch:
        if event.progress.step >= 1:
            break
    updated = update_memory(training, api, job.name, ["memory.blocks_to_swap"], blocks_to_swap="2")
    assert updated.spec.memory.blocks_to_swap == "2"
    seen = []
    for event in watch:
        seen.append(event.type)
        if event.type == api.event.JobEvent.TYPE_PLAN_READY:
            break
    assert seen.index(api.event.JobEvent.TYPE_UPDATED) < len(seen) - 1
    command = ["update", job.name.removeprefix("jobs/"), "--set", "memory.blocks_to_swap=3", "--set", "labels.a=b"]
    programs.run("blockswap", "--server", f"unix:{daemon.socket}", *command)
    job = training.GetJob(api.training.GetJobRequest(name=job.name), timeout=10)
    assert (job.spec.memory.blocks_to_swap, dict(job.spec.labels)) == ("3", {"a": "b"})
    cancel = api.training.CancelJobRequest(name=job.name, mode=api.training.CancelJobRequest.MODE_NOW)
    training.CancelJob(cancel, timeout=10)
    for event in watch:
        pass


def test_update_refuses_what_cannot_change_all_at_once(finished_job, training, api):
    job, _ = finished_job
    with pytest.raises(grpc.RpcError) as caught:
        update_memory(training, api, job.name, ["training.max_steps", "memory.ring_sise", "state"])
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    fields = [violation.field for violation in details(caught.value)[1].field_violations]
    assert fields == ["training.max_steps", "memory.ring_sise", "state"]


def test_update_with_a_stale_etag_is_refused(finished_job, training, api):
    job, _ = finished_job
    with pytest.raises(grpc.RpcError) as caught:
        update_memory(training, api, job.name, ["labels"], etag="v0")
    assert caught.value.code() == grpc.StatusCode.ABORTED
    assert details(caught.value)[0].reason == "ETAG_MISMATCH"


def test_link_of_the_device_is_measured_once_and_shown(daemon, api, programs):
    measured = json.loads(programs.run("blockswap-worker", "link-test", "--device", "host", "-o", "json").stdout)
    assert measured["h2d_bytes_per_second"] > 0 and 1 <= measured["duplex_factor"] <= 2
    stub = api.admin_stub(daemon.channel)
    deadline = time.monotonic() + START_SECONDS
    link = None
    while time.monotonic() < deadline and (link is None or link.h2d_bytes_per_second == 0):
        (device,) = stub.ListDevices(api.admin.ListDevicesRequest(), timeout=10).devices
        link = device.link
    assert link.h2d_bytes_per_second > 0 and link.pageable_bytes_per_second > 0
    shown = programs.run("blockswap", "--server", f"unix:{daemon.socket}", "devices").stdout
    assert "GB/s" in shown


def test_cancelling_again_changes_nothing(finished_job, training, api):
    job, _ = finished_job
    assert training.CancelJob(api.training.CancelJobRequest(name=job.name), timeout=10).state == job.state


def test_same_request_id_answers_the_same_job(submit):
    request_id = str(uuid.uuid4())
    assert submit("twice", request_id).name == submit("twice", request_id).name
    with pytest.raises(grpc.RpcError) as caught:
        submit("other", request_id)
    assert caught.value.code() == grpc.StatusCode.ALREADY_EXISTS
    assert details(caught.value)[0].reason == "REQUEST_ID_REUSED"


def test_every_violation_of_a_spec_is_reported_at_once(training, api):
    spec = digits_example.job_spec()
    spec["network"]["rank"] = -1
    spec["training"]["learning_rate"] = -0.5
    spec["memory"]["mode"] = "sideways"
    request = api.training.CreateJobRequest(spec=json_format.ParseDict(spec, api.job.JobSpec()))
    with pytest.raises(grpc.RpcError) as caught:
        training.CreateJob(request, timeout=10)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    info, bad_request = details(caught.value)
    assert (info.domain, info.reason) == ("blockswap", "SPEC_INVALID")
    fields = [violation.field.removeprefix("spec.") for violation in bad_request.field_violations]
    assert fields == ["network.rank", "training.learning_rate", "memory.mode"]


def test_paths_outside_the_roots_are_not_allowed(training, api):
    spec = digits_example.job_spec()
    spec["model"]["weights"] = "../../../../etc/passwd"
    request = api.training.CreateJobRequest(spec=json_format.ParseDict(spec, api.job.JobSpec()))
    with pytest.raises(grpc.RpcError) as caught:
        training.CreateJob(request, timeout=10)
    assert caught.value.code() == grpc.StatusCode.PERMISSION_DENIED
    assert details(caught.value)[0].reason == "PATH_NOT_ALLOWED"


def test_unknown_job_is_not_found(training, api):
    with pytest.raises(grpc.RpcError) as caught:
        training.GetJob(api.training.GetJobRequest(name="jobs/never-made"), timeout=10)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    assert details(caught.value)[0].reason == "JOB_NOT_FOUND"


def test_metrics_satisfy_promtool_and_count_the_copies(finished_job, daemon):
    text = daemon.metrics()
    promtool = shutil.which("promtool")
    assert promtool, "promtool is missing: run deploy/bootstrap.sh"
    checked = subprocess.run([promtool, "check", "metrics"], input=text, text=True, capture_output=True, timeout=30)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    copied = re.findall(r'^blockswap_swap_bytes_total\{[^}]*direction="h2d"[^}]*\} (\S+)$', text, re.MULTILINE)
    assert copied and sum(map(float, copied)) > 0
