# SPDX-License-Identifier: Apache-2.0
"""A job whose server is killed again and again, and its worker, too: the adapter is that of a run nobody disturbed."""

import os
import pathlib
import signal
import tempfile
import time

import pytest
import torch
from google.protobuf import json_format
from safetensors.torch import load_file

import digits_example
from daemon_process import Daemon

STEPS = 200
SERVER_KILLS = 20
# Of these kills, those that a worker goes with: under a server that lives until the next attempt trains, or after its
# server's death, in turn.
WORKER_KILLS = (2, 6, 10, 14, 18)
# Kill k waits for step 9k, so that the last is well before the end: a busy test overlooks some steps.
STEPS_BETWEEN_KILLS = 9
STEPS_WITHOUT_A_SERVER = 2
SAVE_EVERY_STEPS = 5
PATIENCE_SECONDS = 300
ARGUMENTS = ("--http", "off", "--retry-backoff", "0.05", "--measure-links", "false")


class DisturbedJob:
    """A job on a daemon that is killed again and again.

    Its worker is halted while the next daemon starts: how long that takes on a busy machine decides neither how many steps
    are made meanwhile nor whether any are left for the next kill.
    """

    def __init__(self, daemon, api, spec):
        self.daemon, self.api = daemon, api
        self.calls = api.training_stub(daemon.channel)
        request = api.training.CreateJobRequest(spec=json_format.ParseDict(spec, api.job.JobSpec()))
        self.job = self.calls.CreateJob(request, timeout=30)
        self.deadline = time.monotonic() + PATIENCE_SECONDS

    def check_patience(self):
        assert time.monotonic() < self.deadline, self.daemon.log_text()

    def now(self):
        self.check_patience()
        return self.calls.GetJob(self.api.training.GetJobRequest(name=self.job.name), timeout=30)

    def ended(self, job):
        return job.state in (self.api.event.JOB_STATE_SUCCEEDED, self.api.event.JOB_STATE_FAILED)

    def wait_for_step(self, step, attempt):
        """Of this attempt: a server that dies before it has stored whom it started cannot find that worker again."""
        while True:
            current = self.now()
            assert not self.ended(current), f"over before it was killed often enough\n{self.daemon.log_text()}"
            trains = current.attempt == attempt and current.state == self.api.event.JOB_STATE_RUNNING
            if trains and current.progress.step >= step:
                return
            time.sleep(0.005)

    def worker_pid(self):
        """Waits for the worker: between two attempts there is none for a moment."""
        while True:
            for entry in pathlib.Path("/proc").iterdir():
                try:
                    words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
                except OSError:
                    continue
                if self.job.uid.encode() in words and b"run" in words:
                    return int(entry.name)
            self.check_patience()
            time.sleep(0.005)

    def lines_of_steps(self):
        return (pathlib.Path(self.job.output_directory) / "metrics.jsonl").read_bytes().count(b"\n")

    def last_checkpoint(self):
        request = self.api.training.ListCheckpointsRequest(parent=self.job.name)
        answer = self.calls.ListCheckpoints(request, timeout=30)
        return max((checkpoint.step for checkpoint in answer.checkpoints), default=0)

    def kill_server_between_steps(self, worker_too):
        """Leaves the next server in its place."""
        worker = self.worker_pid()
        lines = self.lines_of_steps()
        self.daemon.kill()
        while self.lines_of_steps() < lines + STEPS_WITHOUT_A_SERVER:
            self.check_patience()
            assert pathlib.Path(f"/proc/{worker}").exists(), f"the worker died, too\n{self.daemon.log_text()}"
            time.sleep(0.005)
        os.kill(worker, signal.SIGKILL if worker_too else signal.SIGSTOP)
        try:
            self.daemon.start()
            self.calls = self.api.training_stub(self.daemon.channel)
        finally:
            if not worker_too:
                os.kill(worker, signal.SIGCONT)


@pytest.fixture
def mortal_daemon(programs):
    with tempfile.TemporaryDirectory(prefix="bs") as directory:
        running = Daemon(programs, pathlib.Path(directory), ARGUMENTS)
        yield running
        assert running.stop() == 0, running.log_text()


def test_killed_servers_and_workers_leave_no_trace_in_the_adapter(mortal_daemon, api, programs, tmp_path_factory):
    spec = digits_example.job_spec("digits", steps=STEPS)
    spec["output"]["save_every_steps"] = SAVE_EVERY_STEPS
    undisturbed = digits_example.train(
        programs, tmp_path_factory, spec, mortal_daemon.state / "models", mortal_daemon.state / "datasets"
    )

    job = DisturbedJob(mortal_daemon, api, spec)
    saved_at_death, categories = [], []
    for kill in range(1, SERVER_KILLS + 1):
        job.wait_for_step(kill * STEPS_BETWEEN_KILLS - STEPS_WITHOUT_A_SERVER, attempt=1 + len(saved_at_death))
        kills_worker = kill in WORKER_KILLS
        under_its_server = kills_worker and len(saved_at_death) % 2 == 0
        if kills_worker:
            saved_at_death.append(job.last_checkpoint())
            categories.append("WORKER_CRASH" if under_its_server else "PREEMPTED")
        if under_its_server:
            os.kill(job.worker_pid(), signal.SIGKILL)
            job.wait_for_step(saved_at_death[-1] + 1, attempt=1 + len(saved_at_death))
        job.kill_server_between_steps(worker_too=kills_worker and not under_its_server)

    while not job.ended(done := job.now()):
        time.sleep(0.05)
    assert done.state == api.event.JOB_STATE_SUCCEEDED, f"{done}\n{mortal_daemon.log_text()}"

    # Only the deaths of workers made attempts, each of which went on from the last checkpoint or a later one.
    attempts = job.calls.ListAttempts(api.training.ListAttemptsRequest(parent=done.name), timeout=30).attempts
    assert len(attempts) == 1 + len(WORKER_KILLS), f"{attempts}\n{mortal_daemon.log_text()}"
    for attempt, saved in zip(attempts[1:], saved_at_death):
        assert attempt.start_step >= saved > 0
    failures = [api.event.FailureCategory.Name(attempt.failure.category) for attempt in attempts]
    assert failures == [f"FAILURE_CATEGORY_{name}" for name in [*categories, "UNSPECIFIED"]]
    # More than that where nobody has reaped the dead worker yet: the server finds it, and then that it has ended.
    assert mortal_daemon.log_text().count(" adopted\n") >= SERVER_KILLS - categories.count("PREEMPTED")

    name = f"{spec['output']['name']}.safetensors"
    expected = load_file(undisturbed / name)
    found = load_file(pathlib.Path(done.output_directory) / name)
    assert expected.keys() == found.keys()
    for key, tensor in expected.items():
        assert torch.equal(tensor, found[key]), key
