# SPDX-License-Identifier: Apache-2.0
"""A connection to blockswapd."""

from __future__ import annotations

import os
import pathlib
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import grpc

from blockswap import errors
from blockswap.endpoint import channel_to
from blockswap.job_file import load_spec
from blockswap.v1 import admin_pb2, admin_pb2_grpc, event_pb2, job_pb2, training_pb2, training_pb2_grpc

TRIES = 4
FIRST_DELAY_SECONDS = 0.05
LONGEST_DELAY_SECONDS = 2.0
CALL_SECONDS = 60.0
TERMINAL = (event_pb2.JOB_STATE_SUCCEEDED, event_pb2.JOB_STATE_FAILED, event_pb2.JOB_STATE_CANCELLED)

JobLike = "str | training_pb2.Job"


def default_server() -> str:
    """BLOCKSWAP_SERVER, else the socket where the daemon listens by default."""
    if named := os.environ.get("BLOCKSWAP_SERVER"):
        return named
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    state = os.environ.get("XDG_STATE_HOME") or pathlib.Path.home() / ".local/state"
    return f"unix:{pathlib.Path(runtime or state) / 'blockswap/blockswapd.sock'}"


def job_name(job: str | training_pb2.Job) -> str:
    name = job if isinstance(job, str) else job.name
    return name if name.startswith("jobs/") else f"jobs/{name}"


class Client:
    """Thread safe. Close it, or use it as a context manager."""

    def __init__(self, server: str | None = None, credentials: grpc.ChannelCredentials | None = None, *,
                 token_file: str | os.PathLike[str] | None = None, tls_ca: str | os.PathLike[str] | None = None,
                 tls_cert: str | os.PathLike[str] | None = None, tls_key: str | os.PathLike[str] | None = None):
        """`server` is "unix:/path", or "host:port" with a token or a client certificate.

        The files default to BLOCKSWAP_TOKEN_FILE, BLOCKSWAP_TLS_CA, BLOCKSWAP_TLS_CERT and BLOCKSWAP_TLS_KEY, the authority to that
        of gRPC. `credentials` are used as they are, in place of all files.
        """
        self._channel = channel_to(server or default_server(), credentials, token_file=token_file, tls_ca=tls_ca,
                                   tls_cert=tls_cert, tls_key=tls_key)
        self.training = training_pb2_grpc.TrainingServiceStub(self._channel)
        self.admin = admin_pb2_grpc.AdminServiceStub(self._channel)

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Jobs

    def submit(self, spec: str | os.PathLike[str] | Mapping[str, Any] | job_pb2.JobSpec, *, job_id: str = "",
               request_id: str | None = None, overrides: Mapping[str, Any] | None = None) -> training_pb2.Job:
        """Creates a job. The same request_id makes one job, however often it is sent."""
        request = training_pb2.CreateJobRequest(spec=load_spec(spec, overrides), job_id=job_id,
                                                request_id=request_id or str(uuid.uuid4()))
        return self._call(self.training.CreateJob, request)

    def plan(self, spec: str | os.PathLike[str] | Mapping[str, Any] | job_pb2.JobSpec, *, device_profile: str = "",
             overrides: Mapping[str, Any] | None = None) -> training_pb2.PlanJobResponse:
        request = training_pb2.PlanJobRequest(spec=load_spec(spec, overrides), device_profile=device_profile)
        return self._call(self.training.PlanJob, request)

    def get(self, job: str | training_pb2.Job) -> training_pb2.Job:
        return self._call(self.training.GetJob, training_pb2.GetJobRequest(name=job_name(job)))

    def list(self, filter: str = "", *, order_by: str = "", page_size: int = 200) -> Iterator[training_pb2.Job]:
        request = training_pb2.ListJobsRequest(filter=filter, order_by=order_by, page_size=page_size,
                                               view=training_pb2.JOB_VIEW_FULL)
        while True:
            page = self._call(self.training.ListJobs, request)
            yield from page.jobs
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def cancel(self, job: str | training_pb2.Job, *, now: bool = False, reason: str = "") -> training_pb2.Job:
        mode = training_pb2.CancelJobRequest.MODE_NOW if now else training_pb2.CancelJobRequest.MODE_GRACEFUL
        request = training_pb2.CancelJobRequest(name=job_name(job), mode=mode, reason=reason)
        return self._call(self.training.CancelJob, request)

    def suspend(self, job: str | training_pb2.Job) -> training_pb2.Job:
        return self._call(self.training.SuspendJob, training_pb2.SuspendJobRequest(name=job_name(job)))

    def resume(self, job: str | training_pb2.Job) -> training_pb2.Job:
        return self._call(self.training.ResumeJob, training_pb2.ResumeJobRequest(name=job_name(job)))

    def checkpoint(self, job: str | training_pb2.Job) -> training_pb2.Job:
        return self._call(self.training.CheckpointJob, training_pb2.CheckpointJobRequest(name=job_name(job)))

    def sample(self, job: str | training_pb2.Job) -> training_pb2.Job:
        return self._call(self.training.SampleJob, training_pb2.SampleJobRequest(name=job_name(job)))

    def delete(self, job: str | training_pb2.Job, *, outputs: bool = False) -> None:
        request = training_pb2.DeleteJobRequest(name=job_name(job), delete_outputs=outputs, allow_missing=True)
        self._call(self.training.DeleteJob, request)

    def metrics(self, job: str | training_pb2.Job, *series: str) -> dict[str, list[tuple[int, float]]]:
        """Series by name, each a list of (step, value)."""
        request = training_pb2.ListMetricPointsRequest(name=job_name(job), series=series)
        response = self._call(self.training.ListMetricPoints, request)
        return {each.name: [(point.step, point.value) for point in each.points] for each in response.series}

    def devices(self) -> list[admin_pb2.Device]:
        return list(self._call(self.admin.ListDevices, admin_pb2.ListDevicesRequest()).devices)

    # Streams

    def watch(self, job: str | training_pb2.Job | None = None, *, filter: str = "", snapshot: bool = True,
              resume_token: bytes = b"", timeout: float | None = None) -> Iterator[event_pb2.JobEvent]:
        """Events until the job has ended; without a job, until the iterator is dropped.

        Bookmarks are not passed on. A stream that breaks is resumed by token, from a new snapshot when the token is too old.
        Raises TimeoutError after `timeout` seconds.
        """
        request = training_pb2.WatchJobsRequest(job=job_name(job) if job is not None else "", filter=filter,
                                                include_snapshot=snapshot, resume_token=resume_token)
        deadline = None if timeout is None else time.monotonic() + timeout
        backoff = _Backoff(deadline)
        while True:
            try:
                for event in self.training.WatchJobs(request, timeout=backoff.left()):
                    backoff.reset()
                    if event.resume_token:
                        request.resume_token = event.resume_token
                    if event.type == event_pb2.JobEvent.TYPE_END:
                        if event.end_reason == event_pb2.JobEvent.END_REASON_JOB_TERMINAL:
                            return
                        break
                    if event.type != event_pb2.JobEvent.TYPE_BOOKMARK:
                        yield event
            except grpc.RpcError as rpc_error:
                error = errors.from_rpc(rpc_error)
                if error.reason == "RESUME_TOKEN_EXPIRED":
                    request.resume_token = b""
                    request.include_snapshot = True
                elif error.code not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED) and \
                        error.reason != "SLOW_CONSUMER":
                    raise error from None
            backoff.wait()

    def wait(self, job: str | training_pb2.Job, *, timeout: float | None = None) -> training_pb2.Job:
        """The job after it succeeded; JobFailed, JobCancelled or TimeoutError otherwise."""
        for event in self.watch(job, timeout=timeout):
            if event.state in TERMINAL and event.type != event_pb2.JobEvent.TYPE_PROGRESS:
                break
        ended = self.get(job)
        if ended.state == event_pb2.JOB_STATE_FAILED:
            raise errors.JobFailed(ended)
        if ended.state == event_pb2.JOB_STATE_CANCELLED:
            raise errors.JobCancelled(ended)
        return ended

    def logs(self, job: str | training_pb2.Job, *, follow: bool = False, attempt: int = 0,
             tail: int | None = None) -> Iterator[bytes]:
        """Pieces of the worker's output; with `follow` until the job has ended. Resumed by offset."""
        request = training_pb2.StreamJobLogsRequest(name=job_name(job), attempt=attempt, follow=follow)
        if tail is not None:
            request.tail_lines = tail
        backoff = _Backoff(None)
        while True:
            try:
                for chunk in self.training.StreamJobLogs(request):
                    backoff.reset()
                    if chunk.text:
                        request.offset = chunk.next_offset or chunk.offset + len(chunk.text)
                        request.attempt = chunk.attempt
                        yield chunk.text
                    if chunk.end == event_pb2.JobEvent.END_REASON_JOB_TERMINAL:
                        return
                if not follow:
                    return
            except grpc.RpcError as rpc_error:
                error = errors.from_rpc(rpc_error)
                if error.code != grpc.StatusCode.UNAVAILABLE:
                    raise error from None
            backoff.wait()

    def _call(self, method: Callable[..., Any], request: Any) -> Any:
        for left in reversed(range(TRIES)):
            try:
                return method(request, timeout=CALL_SECONDS)
            except grpc.RpcError as rpc_error:
                error = errors.from_rpc(rpc_error)
                if error.code != grpc.StatusCode.UNAVAILABLE or left == 0:
                    raise error from None
            time.sleep(FIRST_DELAY_SECONDS * 2 ** (TRIES - 1 - left))
        raise AssertionError("unreachable")


class _Backoff:
    """Waits longer from try to try, and no longer than until the deadline."""

    def __init__(self, deadline: float | None):
        self._deadline = deadline
        self.reset()

    def reset(self) -> None:
        self._delay = FIRST_DELAY_SECONDS

    def left(self) -> float | None:
        if self._deadline is None:
            return None
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the job has not ended within the time given")
        return left

    def wait(self) -> None:
        self.left()
        time.sleep(self._delay)
        self._delay = min(2 * self._delay, LONGEST_DELAY_SECONDS)
