# SPDX-License-Identifier: Apache-2.0
"""What the server says went wrong, as exceptions."""

from __future__ import annotations

import dataclasses

import grpc
from google.rpc import error_details_pb2, status_pb2

from blockswap.v1 import training_pb2


@dataclasses.dataclass(frozen=True)
class Violation:
    field: str
    description: str


class Error(Exception):
    """A call that failed. `reason` is the server's closed vocabulary, empty when no server answered."""

    def __init__(self, code: grpc.StatusCode, message: str, reason: str = "", metadata: dict[str, str] | None = None,
                 violations: tuple[Violation, ...] = ()):
        details = "".join(f"\n  {each.field}: {each.description}" for each in violations)
        super().__init__(message + (f" [{reason}]" if reason else "") + details)
        self.code, self.message, self.reason = code, message, reason
        self.metadata, self.violations = metadata or {}, violations


class JobFailed(Exception):
    """A job that was waited for and ended FAILED; `job` says why."""

    def __init__(self, job: training_pb2.Job):
        failure = job.failure
        super().__init__(f"{job.name} failed: {failure.reason}: {failure.message}")
        self.job = job


class JobCancelled(Exception):
    """A job that was waited for and ended CANCELLED."""

    def __init__(self, job: training_pb2.Job):
        super().__init__(f"{job.name} was cancelled")
        self.job = job


def from_rpc(error: grpc.RpcError) -> Error:
    reason, metadata, violations = "", {}, []
    for key, value in error.trailing_metadata() or ():
        if key != "grpc-status-details-bin":
            continue
        for packed in status_pb2.Status.FromString(value).details:
            info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
            if packed.Unpack(info):
                reason, metadata = info.reason, dict(info.metadata)
            elif packed.Unpack(bad):
                violations += [Violation(each.field, each.description) for each in bad.field_violations]
    return Error(error.code(), error.details() or "", reason, metadata, tuple(violations))
