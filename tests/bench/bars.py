#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The bars that the service holds itself to, each with what it reaches now on this machine.

Figures are measured on the programs of a release build; a bar that a test shows runs that test. Each line has the share of
the bar that is used up. The exit status is 1 when a bar is missed or what measures it is not built; bars that this machine
cannot show are named and count as neither.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
import uuid

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "interop")]

import grpc  # noqa: E402
from google.protobuf import json_format  # noqa: E402

import digits_example  # noqa: E402
from conftest import Programs  # noqa: E402
from proto_stubs import make_stubs  # noqa: E402
from test_web_page import Daemon  # noqa: E402

RUNS = 20  # of a command that is timed; the median counts
STORED_JOBS = 10000
DUPLICATES = 50
CORES_FOR_SCRAPERS = 4  # below that their own work competes with the training's


class Report:
    def __init__(self):
        self.missed = 0

    def line(self, number, what, figure, mark):
        print(f"{number:>2}  {mark:<10}  {what:<50} {figure}", flush=True)

    def at_most(self, number, what, value, bar, unit):
        self.missed += value > bar
        self.line(number, what, f"{value:.4g} {unit}, bar {bar:g} {unit}", f"{value / bar:.2f}")

    def holds(self, number, what, figure, ok):
        self.missed += not ok
        self.line(number, what, figure, "holds" if ok else "MISSED")

    def not_here(self, number, what, why):
        self.line(number, what, why, "not here")


class Machine:
    def __init__(self, build):
        self.build, self.programs = build, Programs(build / "bin")

    def run_ctest(self, report, number, what, pattern):
        command = ["ctest", "--test-dir", self.build, "-R", pattern]
        text = subprocess.run(command, capture_output=True, text=True).stdout
        counts = re.search(r"(\d+) tests failed out of (\d+)", text)
        failed, total = (int(counts[1]), int(counts[2])) if counts else (0, 0)
        self.report_tests(report, number, what, total - failed, failed, "ctest -R " + pattern)

    def run_pytest(self, report, number, what, *arguments):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
        environment = {**os.environ, "BLOCKSWAP_BIN_DIR": str(self.programs.directory)}
        text = subprocess.run(command, env=environment, cwd=TESTS.parent, capture_output=True, text=True).stdout
        counts = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|error)", text)}
        failed = counts.get("failed", 0) + counts.get("error", 0)
        self.report_tests(report, number, what, counts.get("passed", 0), failed, " ".join(["pytest", *arguments]))

    @staticmethod
    def report_tests(report, number, what, passed, failed, command):
        report.holds(number, what, f"{passed} tests passed, {failed} failed: {command}", passed > 0 and failed == 0)


class Service:
    """A blockswapd with fake workers, and a client of it."""

    def __init__(self, machine, directory, stubs):
        self.stubs, self.daemon = stubs, Daemon(machine.programs, directory)
        self.connect()

    def connect(self):
        socket = self.daemon.directory / "run" / "blockswap" / "blockswapd.sock"
        self.channel = grpc.secure_channel(
            f"unix:{socket}", grpc.local_channel_credentials(grpc.LocalConnectionType.UDS),
            options=[("grpc.use_local_subchannel_pool", 1)],
        )  # fmt: skip
        self.training = self.stubs.training_stub(self.channel)

    def seconds_of(self, *arguments):
        begin = time.monotonic()
        done = self.daemon.cli(*arguments)
        seconds = time.monotonic() - begin
        assert done.returncode == 0, done.stderr
        return seconds

    def median_milliseconds_of(self, *arguments):
        return 1000 * statistics.median(self.seconds_of(*arguments) for _ in range(RUNS))


def bar_2(report, service):
    spec = json_format.ParseDict(digits_example.job_spec("duplicate"), service.stubs.job.JobSpec())
    request = service.stubs.training.CreateJobRequest(spec=spec, request_id=str(uuid.uuid4()))
    with concurrent.futures.ThreadPoolExecutor(DUPLICATES) as pool:
        jobs = list(pool.map(lambda _: service.training.CreateJob(request, timeout=60).name, range(DUPLICATES)))
    report.holds(2, f"{DUPLICATES} duplicate submits at once", f"{len(set(jobs))} job, bar 1", len(set(jobs)) == 1)


def bar_3(report, machine, service):
    poisoned = service.daemon.submit("poisoned", "steps=4 exit_at=2 exit_code=12", steps=4)
    service.daemon.wait_state(poisoned, "RECOVERING")
    begin = time.monotonic()
    follower = service.daemon.submit("next", "steps=1", steps=1)
    service.daemon.wait_state(follower, "SUCCEEDED")
    report.at_most(3, "sticky device error: next job on the device done", time.monotonic() - begin, 5, "s")
    machine.run_ctest(report, 3, "sticky device error: device tried or drained", "^worker_faults_test$")


def bar_4(report, machine):
    text = subprocess.run(
        [machine.programs.path("bench_metrics"), "16", "10", "10"], capture_output=True, text=True, check=True
    ).stdout
    series = int(re.search(r"(\d+) series", text)[1])
    p99 = float(re.search(r"scrape over HTTP.*p99\s+([\d.]+) ms", text)[1])
    report.at_most(4, "scrape at 10 a second with 16 slots, p99", p99, 50, "ms")
    report.at_most(4, "series of 16 slots", series, 2000, "series")
    environment = {**os.environ, "BLOCKSWAP_BIN_DIR": str(machine.programs.directory)}
    # The scrapers' own work may not fall on the core that trains.
    command = [sys.executable, TESTS / "bench" / "scrape_cost.py", "--rate", "10", "--slow", "0", "--pairs", "12", "--seconds", "5"]
    command += ["--apart"] if os.cpu_count() < CORES_FOR_SCRAPERS else []
    if os.cpu_count() > 1:
        cost = json.loads(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
        report.at_most(4, "step time beside scrapes", 100 * (cost["median_ratio_of_pairs"] - 1), 1, "%")
    else:
        report.not_here(4, "step time beside scrapes", "one core, which scrapers share")
    machine.run_pytest(report, 4, "promtool and the list of metrics", "tests/interop/test_prometheus.py", "-k", "list")


def bar_6(report, service):
    daemon = service.daemon
    long = "steps=1000 pace=50"
    jobs = {
        "succeeded": (daemon.submit("good", "steps=2", steps=2), 0),
        "failed": (daemon.submit("bad", "steps=4 exit_at=2 exit_code=14", steps=4), 3),
    }
    found = {name: (daemon.cli("wait", job).returncode, code) for name, (job, code) in jobs.items()}
    cancelled = daemon.submit("long", long, steps=1000)
    found["timeout"] = (daemon.cli("wait", cancelled, "--timeout", "0.2").returncode, 5)
    daemon.cli("cancel", "--now", cancelled)
    found["cancelled"] = (daemon.cli("wait", cancelled).returncode, 4)
    found["not there"] = (daemon.cli("wait", "nothing-0000").returncode, 6)
    cut = daemon.submit("cut", long, steps=1000)
    waiter = subprocess.Popen(
        [daemon.programs.path("blockswap"), "wait", cut], env=daemon.environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    daemon.wait_state(cut, "RUNNING")
    daemon.stop()
    found["cut connection"] = (waiter.wait(timeout=120), 7)
    daemon.start()
    service.connect()
    daemon.cli("cancel", "--now", cut)
    wrong = {name: codes for name, codes in found.items() if codes[0] != codes[1]}
    report.holds(6, "exit codes of wait", f"{len(found) - len(wrong)} of {len(found)} right {wrong or ''}", not wrong)
    job = jobs["succeeded"][0]
    verbs = [
        ["list", "-A"], ["get", job], ["describe", job], ["attempts", job], ["events", job], ["checkpoints", "list", job],
        ["metrics", job], ["devices"], ["server", "info"], ["queue"], ["templates"], ["version"], ["config", "view"],
    ]  # fmt: skip
    invalid = [" ".join(verb) for verb in verbs if not answers_json(daemon, verb)]
    report.holds(6, "-o json", f"{len(verbs) - len(invalid)} of {len(verbs)} read verbs {invalid or ''}", not invalid)


def answers_json(daemon, verb):
    done = daemon.cli(*verb, "-o", "json")
    try:
        json.loads(done.stdout)
    except ValueError:
        return False
    return done.returncode == 0


def bar_7(report, machine, service):
    daemon = service.daemon
    running = daemon.submit("running", "steps=100000 pace=20", steps=100000)
    daemon.submit("starting", "steps=3", steps=3)
    daemon.wait_state(running, "RUNNING")
    watcher = subprocess.Popen(
        [daemon.programs.path("blockswap"), "watch", "-o", "jsonl"], env=daemon.environment,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    watcher.stdout.readline()  # it streams
    begin = time.monotonic()
    status = daemon.stop()
    # The grace of this daemon for workers, two seconds, one more until SIGKILL, and two for streams.
    report.at_most(7, "stop with a live stream and a running job", time.monotonic() - begin, 5, "s")
    report.holds(7, "stop", f"exit status {status}, bar 0", status == 0)
    watcher.kill()
    watcher.wait()
    machine.run_ctest(report, 7, "stop in every phase", "^server_stop_test$")


def bar_8(report, machine, service):
    daemon = service.daemon
    daemon.stop()
    store = daemon.state / "jobs.db"
    for file in daemon.state.glob("jobs.db*"):
        file.unlink()
    subprocess.run(
        [machine.programs.path("bench_store"), str(STORED_JOBS), "0", store], check=True, capture_output=True
    )
    times = []
    for _ in range(5):
        begin = time.monotonic()
        daemon.start()
        times.append(time.monotonic() - begin)
        if len(times) < 5:
            daemon.stop()
    report.at_most(8, f"cold start with {STORED_JOBS} jobs", 1000 * statistics.median(times), 300, "ms")
    status = pathlib.Path(f"/proc/{daemon.process.pid}/status").read_text()
    report.at_most(8, "resident memory, idle", int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024, 60, "MiB")
    report.at_most(8, "blockswap list", service.median_milliseconds_of("list"), 50, "ms")
    everything = service.median_milliseconds_of("list", "-A")
    report.line(8, f"blockswap list -A: all {STORED_JOBS}", f"{everything:.4g} ms, no bar", "")
    report.at_most(8, "start-up: blockswap version", service.median_milliseconds_of("version"), 50, "ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=TESTS.parent / "build" / "release")
    parser.add_argument("--only", type=int, action="append", help="a bar by its number; may be repeated")
    arguments = parser.parse_args()
    machine, report = Machine(arguments.build.resolve()), Report()

    def with_service(measure):
        with tempfile.TemporaryDirectory(prefix="bs") as directory:
            stubs = make_stubs(TESTS.parent, pathlib.Path(tempfile.mkdtemp(dir=directory)))
            service = Service(machine, pathlib.Path(directory), stubs)
            try:
                measure(service)
            finally:
                service.channel.close()
                service.daemon.stop()

    pytest, ctest = machine.run_pytest, machine.run_ctest
    crash = "tests/interop/test_crash_recovery.py"
    doors = "^(server_service_guard_test|spec_validation.*|numeric_fields_test|rooted_path_test|fuzz_.*)$"
    page = "drawn_without_complaint or asks_nobody"
    bars = {
        1: lambda: pytest(report, 1, "20 kills of the server: same bits, no restart used up", crash),
        2: lambda: with_service(lambda service: bar_2(report, service)),
        3: lambda: with_service(lambda service: bar_3(report, machine, service)),
        4: lambda: bar_4(report, machine),
        5: lambda: ctest(report, 5, "roles, fields, paths, corpora of the fuzzers", doors),
        6: lambda: with_service(lambda service: bar_6(report, service)),
        7: lambda: with_service(lambda service: bar_7(report, machine, service)),
        8: lambda: with_service(lambda service: bar_8(report, machine, service)),
        9: lambda: [
            pytest(report, 9, "panels have exported names", "tests/interop/test_prometheus.py", "-k", "panel or dashboard"),
            pytest(report, 9, "page offline, no error", "tests/interop/test_web_page.py", "-k", page),
        ],
        10: lambda: report.not_here(10, "predicted VRAM within 5 % of the peak", "needs a GPU: tests/gpu/run.sh"),
    }
    for number, measure in bars.items():
        if arguments.only is None or number in arguments.only:
            measure()
    print("each bar holds" if report.missed == 0 else f"{report.missed} missed")
    return 1 if report.missed else 0


if __name__ == "__main__":
    sys.exit(main())
