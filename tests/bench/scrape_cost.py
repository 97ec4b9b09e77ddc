#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scrapers cost a training job: its step time with and without them, side by side.

    BLOCKSWAP_BIN_DIR=build/release/bin tests/bench/scrape_cost.py [--pairs 6] [--seconds 10] [--rate 50] [--slow 20] [--apart]

Runs the digits example on the host device under a daemon of its own and alternates stretches without and with RATE scrapes of
/metrics a second (a new connection each) beside SLOW readers that ask for it and take nothing. Prints the median step of each
stretch, the medians over all of a kind, and their ratio: row 27 of the fault list wants less than 1.01, and the share of a core
that the daemon takes in each kind. Run it with the Python of the toolchain on an idle machine; with fewer than four cores the
scrapers' own work competes with the training's, unless --apart keeps the worker on core 0 and all else on the others."""
import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "interop"))
import digits_example  # noqa: E402

START_SECONDS = 60
# The worker reports once a second: what it reported after this long into a stretch was done within it.
SETTLE_SECONDS = 1.5


class Scrapers:
    """RATE requests a second that are read, and some that are not. A context: they stop at its end."""

    def __init__(self, port, rate, slow):
        self.port, self.rate, self.slow = port, rate, slow
        self.stop = threading.Event()
        self.done = self.failed = 0

    def __enter__(self):
        self.threads = [threading.Thread(target=self.scrape)]
        self.threads += [threading.Thread(target=self.stall) for _ in range(self.slow)]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def scrape(self):
        following = time.monotonic()
        while not self.stop.is_set():
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
                    answer.read()
                self.done += 1
            except OSError:
                self.failed += 1
            following += 1 / self.rate
            self.stop.wait(max(0, following - time.monotonic()))

    def stall(self):
        while not self.stop.is_set():
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                    connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                    self.stop.wait(12)  # the server cuts who takes nothing for ten seconds
            except OSError:
                self.stop.wait(0.1)


class Server:
    def __init__(self, programs, directory):
        self.programs = programs
        self.state = directory / "state" / "blockswap"
        self.environment = {**os.environ, "XDG_STATE_HOME": str(directory / "state"), "XDG_RUNTIME_DIR": str(directory / "run")}
        for root in ("models", "datasets"):
            (self.state / root).mkdir(parents=True)
        (directory / "run").mkdir(mode=0o700)
        digits_example.copy_model(self.state / "models")
        digits_example.write_dataset(self.state / "datasets")
        self.log = open(directory / "daemon.log", "wb")
        self.process = subprocess.Popen(
            [programs / "blockswapd", "--http", "127.0.0.1:0", "--measure-links", "false", "--stop-grace", "5"],
            env=self.environment, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self.port = int((self.state / "http.port").read_text())
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5).close()
                return
            except (OSError, ValueError):
                if self.process.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"blockswapd did not come up: {pathlib.Path(self.log.name).read_text(errors='replace')}")
                time.sleep(0.05)

    def keep_apart(self):
        """The worker's threads on core 0; the daemon's and this program's, and what they start, on the others."""
        first, others = {0}, set(range(1, os.cpu_count()))
        for task in pathlib.Path("/proc").glob("[0-9]*/task/[0-9]*"):
            process = int(task.parts[2])
            try:
                parent = int((task / "stat").read_text().rpartition(") ")[2].split()[1])
                if parent == self.process.pid:
                    os.sched_setaffinity(int(task.name), first)
                elif process in (self.process.pid, os.getpid()):
                    os.sched_setaffinity(int(task.name), others)
            except OSError:
                pass  # it has just ended

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self):
        self.process.terminate()
        self.process.wait(timeout=60)

    def submit(self, directory, steps):
        spec = digits_example.job_spec("scraped", steps=steps)
        del spec["device"]
        file = directory / "job.json"
        file.write_text(json.dumps(spec))
        done = subprocess.run([self.programs / "blockswap", "submit", file, "-q"], env=self.environment, check=True,
                              capture_output=True, text=True)
        return done.stdout.strip().removeprefix("jobs/")

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}", timeout=10) as answer:
            return json.load(answer)

    def step(self, job):
        answer = self.get(f"jobs/{job}")
        if answer["state"] not in ("JOB_STATE_QUEUED", "JOB_STATE_STARTING", "JOB_STATE_RUNNING"):
            sys.exit(f"the job is {answer['state']}: {answer.get('failure') or answer['state_message']}")
        return int((answer.get("progress") or {}).get("step") or 0)

    def seconds(self, job, first, last):
        """Of each step in first..last."""
        found = []
        while first <= last:
            address = f"jobs/{job}/metrics?series=seconds&from_step={first}&max_points=10000"
            points = [point for series in self.get(address)["series"] for point in series["points"]]
            if not points:
                break
            found += [point["value"] for point in points if int(point["step"]) <= last]
            first = int(points[-1]["step"]) + 1
        return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rate", type=float, default=50)
    parser.add_argument("--slow", type=int, default=20)
    parser.add_argument("--apart", action="store_true")
    arguments = parser.parse_args()
    programs = pathlib.Path(os.environ.get("BLOCKSWAP_BIN_DIR", ROOT / "build/release/bin")).resolve()
    for name in ("blockswapd", "blockswap", "blockswap-worker"):
        if not (programs / name).exists():
            sys.exit(f"{programs / name} is missing: build it, or set BLOCKSWAP_BIN_DIR")
    steps = {"quiet": [], "scraped": []}
    medians = {"quiet": [], "scraped": []}
    daemon = {"quiet": [], "scraped": []}
    scrapes = failed = 0
    with tempfile.TemporaryDirectory() as path:
        server = Server(programs, pathlib.Path(path))
        try:
            job = server.submit(pathlib.Path(path), steps=10_000_000)
            while server.step(job) < 10:
                time.sleep(0.2)
            if arguments.apart:
                server.keep_apart()

            def stretch(kind):
                time.sleep(SETTLE_SECONDS)
                first = server.step(job) + 1
                before = server.cpu_seconds()
                time.sleep(arguments.seconds)
                daemon[kind].append((server.cpu_seconds() - before) / arguments.seconds)
                found = server.seconds(job, first, server.step(job))
                if not found:
                    sys.exit("no step was done in a stretch: give it more --seconds")
                steps[kind] += found
                medians[kind].append(statistics.median(found))
                print(f"{kind:8} {len(found):6} steps, median {1e3 * medians[kind][-1]:8.3f} ms", file=sys.stderr)

            for _ in range(arguments.pairs):
                stretch("quiet")
                with Scrapers(server.port, arguments.rate, arguments.slow) as scrapers:
                    stretch("scraped")
                scrapes += scrapers.done
                failed += scrapers.failed
        finally:
            server.close()
    total = arguments.pairs * (arguments.seconds + SETTLE_SECONDS)
    both = {kind: statistics.median(values) for kind, values in steps.items()}
    print(json.dumps({
        "steps": {kind: len(values) for kind, values in steps.items()},
        "median_step_ms": {kind: round(1e3 * value, 4) for kind, value in both.items()},
        "daemon_share_of_a_core": {kind: round(statistics.median(values), 4) for kind, values in daemon.items()},
        "ratio": round(both["scraped"] / both["quiet"], 4),
        # Of neighbours in time: what the machine does over minutes falls out.
        "median_ratio_of_pairs": round(statistics.median(
            scraped / quiet for quiet, scraped in zip(medians["quiet"], medians["scraped"])), 4),
        "scrapes_per_second": round(scrapes / total, 1), "failed_scrapes": failed,
        "slow_readers": arguments.slow, "cores": os.cpu_count()}, indent=2))


if __name__ == "__main__":
    main()
