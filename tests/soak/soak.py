# SPDX-License-Identifier: Apache-2.0
"""Soaks: what must not grow, break or drift however long a server lives. See tests/soak.sh."""

import argparse
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "interop")]

import grpc  # noqa: E402
from google.protobuf import json_format  # noqa: E402

import digits_example  # noqa: E402
from conftest import Programs  # noqa: E402
from proto_stubs import make_stubs  # noqa: E402
from test_web_page import Daemon  # noqa: E402

SHORT_JOBS_SECONDS = 210
# Caches, the allocator's spare pages and gRPC's threads reach their size in the first jobs.
WARM_UP_SHARE = 0.2
PLACES = 4
JOBS_AT_ONCE = 24
SCRAPES_PER_SECOND = 10
SCRAPE_P99_SECONDS = 0.05
MOST_GROWTH_BYTES = 8 << 20
# gRPC's pool has as many threads as were ever busy at once, and slots have more series while they have a worker.
MOST_MORE_THREADS = 6
MOST_MORE_SERIES = 12
KILL_ROUNDS = 6
STEP_ROUNDS = 10  # of a thousand steps


@dataclasses.dataclass
class Row:
    soak: str
    figure: str
    bar: str
    ok: bool


@dataclasses.dataclass
class Footprint:
    resident: int
    descriptors: int
    threads: int
    series: int
    shared: int


def footprint(daemon):
    proc = pathlib.Path(f"/proc/{daemon.process.pid}")
    status = (proc / "status").read_text()
    with urllib.request.urlopen(f"{daemon.url}/metrics", timeout=10) as page:
        series = sum(1 for line in page.read().decode().splitlines() if line and not line.startswith("#"))
    return Footprint(
        resident=int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) << 10,
        descriptors=len(list((proc / "fd").iterdir())),
        threads=len(list((proc / "task").iterdir())),
        series=series,
        shared=sum(1 for entry in pathlib.Path("/dev/shm").iterdir() if "blockswap" in entry.name),
    )


def settled_footprint(daemon, least):
    """Connections close a moment after their last answer: waits until there are no more than before, or ten seconds."""
    deadline = time.monotonic() + 10
    while (now := footprint(daemon)).descriptors > least.descriptors and time.monotonic() < deadline:
        time.sleep(0.05)
    return now


class Scraper(threading.Thread):
    """Reads the metrics ten times a second until it is told to stop."""

    def __init__(self, daemon):
        super().__init__(daemon=True)
        self.url, self.seconds, self.over = f"{daemon.url}/metrics", [], threading.Event()

    def run(self):
        while not self.over.wait(1 / SCRAPES_PER_SECOND):
            begin = time.monotonic()
            with urllib.request.urlopen(self.url, timeout=10) as page:
                page.read()
            self.seconds.append(time.monotonic() - begin)

    def stop(self):
        self.over.set()
        self.join()
        return sorted(self.seconds)


def script_of(index):
    """Most jobs succeed, some are tried twice, some fail, some are cancelled."""
    return {3: "steps.2-save.1-crash_at.2", 7: "steps.2-exit_at.2-exit_code.14"}.get(index % 10, "steps.2-save.1")


class ShortJobs:
    def __init__(self, programs, directory):
        self.stubs = make_stubs(TESTS.parent, pathlib.Path(tempfile.mkdtemp(dir=directory)))
        arguments = ["--max-jobs-per-device", PLACES, "--retry-backoff", "0.01", "--max-queued-jobs", 1000]
        self.daemon = Daemon(programs, directory, tuple(map(str, arguments)))
        socket = directory / "run" / "blockswap" / "blockswapd.sock"
        self.channel = grpc.secure_channel(
            f"unix:{socket}", grpc.local_channel_credentials(grpc.LocalConnectionType.UDS)
        )
        self.training = self.stubs.training_stub(self.channel)
        self.made, self.states = 0, {}

    def run_for(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            jobs = [self.submit() for _ in range(JOBS_AT_ONCE)]
            for index, job in enumerate(jobs):
                if index % 10 == 9:
                    self.training.CancelJob(self.stubs.training.CancelJobRequest(name=job.name), timeout=30)
            for job in jobs:
                self.finish(job)

    def submit(self):
        spec = digits_example.job_spec(f"short-{self.made}")
        spec["labels"] = {"fake": script_of(self.made)}
        self.made += 1
        request = self.stubs.training.CreateJobRequest(spec=json_format.ParseDict(spec, self.stubs.job.JobSpec()))
        return self.training.CreateJob(request, timeout=30)

    def finish(self, job):
        watch = self.training.WatchJobs(self.stubs.training.WatchJobsRequest(job=job.name), timeout=120)
        for _ in watch:
            pass
        done = self.training.GetJob(self.stubs.training.GetJobRequest(name=job.name), timeout=30)
        name = self.stubs.event.JobState.Name(done.state).removeprefix("JOB_STATE_").lower()
        self.states[name] = self.states.get(name, 0) + 1


def soak_short_jobs(programs, seconds):
    with tempfile.TemporaryDirectory(prefix="bs") as directory:
        jobs = ShortJobs(programs, pathlib.Path(directory))
        try:
            scraper = Scraper(jobs.daemon)
            scraper.start()
            jobs.run_for(seconds * WARM_UP_SHARE)
            warm, warm_jobs = footprint(jobs.daemon), jobs.made
            jobs.run_for(seconds * (1 - WARM_UP_SHARE))
            scrapes = scraper.stop()
            now = settled_footprint(jobs.daemon, warm)
        finally:
            jobs.channel.close()
            status = jobs.daemon.stop()
        p99 = scrapes[len(scrapes) * 99 // 100]
        what = f"{warm_jobs} to {jobs.made} jobs: "
        ended = ", ".join(f"{count} {state}" for state, count in sorted(jobs.states.items()))
        return [
            Row("short jobs", f"{jobs.made} ended: {ended}", "all end", sum(jobs.states.values()) == jobs.made),
            Row("resident memory", f"{what}{warm.resident >> 20} to {now.resident >> 20} MiB",
                f"+{MOST_GROWTH_BYTES >> 20} MiB", now.resident - warm.resident <= MOST_GROWTH_BYTES),
            Row("descriptors", f"{what}{warm.descriptors} to {now.descriptors}", "+0",
                now.descriptors <= warm.descriptors),
            Row("threads", f"{what}{warm.threads} to {now.threads}", f"+{MOST_MORE_THREADS}",
                now.threads <= warm.threads + MOST_MORE_THREADS),
            Row("metric series", f"{what}{warm.series} to {now.series}", f"+{MOST_MORE_SERIES}",
                now.series <= warm.series + MOST_MORE_SERIES),
            Row("files in /dev/shm", f"{what}{warm.shared} to {now.shared}", "0", now.shared == 0),
            Row("scrapes beside them", f"{len(scrapes)}, p99 {p99 * 1000:.1f} ms",
                f"{SCRAPE_P99_SECONDS * 1000:.0f} ms", p99 <= SCRAPE_P99_SECONDS),
            Row("stop after them", f"exit status {status}", "0", status == 0),
        ]  # fmt: skip


def run_tests(build, program, pattern, rounds, seconds):
    """Repeats tests of one program; returns (rounds that passed, why it ended early)."""
    path = build / "tests" / program
    if not path.exists():
        return 0, f"{path} is not built"
    environment = {
        **os.environ,
        "BLOCKSWAP_BIN_DIR": str(build / "bin"),
        "BLOCKSWAP_SOURCE_DIR": str(TESTS.parent),
        "BLOCKSWAP_FAKE_WORKER": str(build / "bin" / "fake_worker"),
        "BLOCKSWAP_FAKE_DAEMON": str(build / "bin" / "fake_daemon"),
    }
    command = [path, f"--gtest_filter={pattern}", f"--gtest_repeat={rounds}", "--gtest_break_on_failure"]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=seconds)
        output = done.stdout.decode(errors="replace")
        problem = "" if done.returncode == 0 else f"{output[-2000:]}{done.stderr.decode(errors='replace')[-2000:]}"
    except subprocess.TimeoutExpired as late:
        output = (late.stdout or b"").decode(errors="replace")
        problem = f"(not over after {seconds} s)"
    # A round that found no test has passed 0 tests: it does not count.
    return len(re.findall(r"^\[  PASSED  \] [1-9]", output, re.MULTILINE)), problem


def soak_kills(build):
    passed, problem = run_tests(build, "server_faults_test", "Row14.*:Row15.*", KILL_ROUNDS, seconds=110)
    figure = f"{passed} rounds of rows 14 and 15: 20 kills in a loop, adopted workers {problem}"
    return [Row("killed servers", figure.strip(), str(KILL_ROUNDS), passed == KILL_ROUNDS and not problem)]


def soak_steps(build):
    passed, problem = run_tests(build, "soak_test", "SoakTest.AThousandSteps*", STEP_ROUNDS, seconds=240)
    figure = f"{passed} rounds of 1000 steps with flat memory {problem}"
    return [Row("steps of offload", figure.strip(), str(STEP_ROUNDS), passed == STEP_ROUNDS and not problem)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=float, default=SHORT_JOBS_SECONDS, help="of short jobs")
    parser.add_argument("--only", choices=["jobs", "kills", "steps"])
    arguments = parser.parse_args()
    soaks = {
        "jobs": lambda: soak_short_jobs(Programs(arguments.build / "bin"), arguments.seconds),
        "kills": lambda: soak_kills(arguments.build),
        "steps": lambda: soak_steps(arguments.build),
    }
    missed = 0
    for name, soak in soaks.items():
        if arguments.only not in (None, name):
            continue
        for row in soak():
            missed += not row.ok
            print(f"{'ok    ' if row.ok else 'MISSED'}  {row.soak:<20} {row.figure}  (bar: {row.bar})", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
