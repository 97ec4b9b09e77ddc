# SPDX-License-Identifier: Apache-2.0
"""The built-in page in a real browser, against a real blockswapd whose workers are fake ones on command.

The figures of the fake worker are lifelike ones. Screenshots go to a temporary directory that the test prints
(BLOCKSWAP_SCREENSHOTS chooses another one).
"""

import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
import zlib

import browser as browsers
import digits_example
import pytest

START_SECONDS = 60
WIDE, NARROW = (1280, 900), (390, 844)
MAX_PAGE_BYTES = 100 * 1024
LIVE = "document.getElementById('link').textContent === 'Live'"


class Daemon:
    def __init__(self, programs, directory, arguments=()):
        self.programs, self.directory, self.arguments = programs, directory, arguments
        self.state = directory / "state" / "blockswap"
        self.environment = {
            **os.environ,
            "XDG_STATE_HOME": str(directory / "state"),
            "XDG_RUNTIME_DIR": str(directory / "run"),
        }
        for root in ("models", "datasets"):
            (self.state / root).mkdir(parents=True)
        (directory / "run").mkdir(mode=0o700)
        digits_example.copy_model(self.state / "models")
        digits_example.write_dataset(self.state / "datasets")
        self.log = open(directory / "daemon.log", "ab")
        self.port = 0
        self.start()

    def start(self):
        (self.state / "http.port").unlink(missing_ok=True)
        command = [self.programs.path("blockswapd"), "--http", f"127.0.0.1:{self.port}"]
        command += ["--worker", self.programs.path("fake_worker"), "--measure-links", "false"]
        command += ["--stop-grace", "2", "--terminate-grace", "1", *self.arguments]
        self.process = subprocess.Popen(
            command, env=self.environment, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log
        )
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            try:
                self.port = int((self.state / "http.port").read_text())
                with urllib.request.urlopen(f"{self.url}/readyz", timeout=5):
                    return
            except (OSError, ValueError):
                assert self.process.poll() is None, self.log_text()
        pytest.fail(f"blockswapd did not come up:\n{self.log_text()}", pytrace=False)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def log_text(self):
        return (self.directory / "daemon.log").read_text(errors="replace")

    def get(self, path):
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}", timeout=10) as response:
            return json.load(response)

    def submit(self, name, script, **settings):
        """Submits the digits job with a script for the fake worker; returns the job's id."""
        spec = digits_example.job_spec(name, **settings)
        spec["labels"] = {"fake": script.replace(" ", "-").replace("=", ".")}
        file = self.directory / f"{name}.json"
        file.write_text(json.dumps(spec))
        done = subprocess.run(
            [self.programs.path("blockswap"), "submit", file, "-q"],
            env=self.environment, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip().removeprefix("jobs/")

    def cli(self, *arguments):
        done = subprocess.run(
            [self.programs.path("blockswap"), *arguments],
            env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        return done

    def wait_state(self, job, *states):
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            state = self.get(f"jobs/{job}")["state"].removeprefix("JOB_STATE_")
            if state in states:
                return state
        pytest.fail(f"{job} is {state}, not {states}:\n{self.log_text()}", pytrace=False)

    def stop(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(how)
        return self.process.wait(timeout=START_SECONDS)


def write_picture(path, seed):
    """A small PNG whose content depends on the seed."""
    size = 48
    rows = b"".join(
        b"\0" + bytes((x * y * (seed + 1) // 9 + x * seed) % 256 for x in range(size)) for y in range(size)
    )

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", size, size, 8, 0, 0, 0, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    )


@pytest.fixture(scope="module")
def shots():
    chosen = os.environ.get("BLOCKSWAP_SCREENSHOTS")
    directory = pathlib.Path(chosen or tempfile.mkdtemp(prefix="blockswap-page-"))
    directory.mkdir(parents=True, exist_ok=True)
    print(f"screenshots: {directory}", file=sys.stderr)
    return directory


@pytest.fixture(scope="module")
def daemon(programs):
    with tempfile.TemporaryDirectory(prefix="bs") as directory:
        running = Daemon(programs, pathlib.Path(directory))
        yield running
        running.stop()
        running.log.close()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    found = browsers.find()
    if found is None:
        pytest.skip("chromium and chromium-driver are not installed: the page is not tested in a browser")
    browser = browsers.Browser(*found, tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def empty_page(chromium, daemon, shots):
    """The page before there is any job."""
    chromium.size(*WIDE)
    chromium.open(f"{daemon.url}/")
    chromium.wait(LIVE)
    chromium.wait("document.body.innerText.includes('No jobs yet')")
    chromium.screenshot(shots / "jobs-empty.png")
    return chromium


@pytest.fixture(scope="module")
def jobs(daemon, empty_page):
    """One job of each kind; the empty page has been seen before."""
    done = daemon.submit("digits-baseline", "steps=60 save=20 lifelike=1 seconds=300 lines=1", steps=60)
    daemon.wait_state(done, "SUCCEEDED")
    failed = daemon.submit("nan-at-seven", "steps=20 exit_at=7 exit_code=14 exit_attempts=9", steps=20)
    daemon.wait_state(failed, "FAILED")
    recovered = daemon.submit("recovers-once", "steps=24 save=8 crash_at=13 lifelike=1 seconds=250", steps=24)
    daemon.wait_state(recovered, "SUCCEEDED")
    running = daemon.submit(
        "portrait-rank-32", "steps=4000 hold_at=161 save=50 lifelike=1 seconds=900 lines=1", steps=4000
    )
    queued = [daemon.submit(f"style-sweep-{number}", "steps=5", steps=5) for number in (1, 2, 3)]
    deadline = time.monotonic() + START_SECONDS
    while int(daemon.get(f"jobs/{running}")["progress"]["step"]) < 160 and time.monotonic() < deadline:
        pass
    output = pathlib.Path(daemon.get(f"jobs/{running}")["output_directory"])
    for seed, step in enumerate((0, 50, 100, 150)):
        write_picture(output / "samples" / f"step-{step:08d}.png", seed + 3)
    return {"done": done, "failed": failed, "recovered": recovered, "running": running, "queued": queued}


@pytest.fixture
def page(chromium, jobs, daemon):
    """The list of jobs on a wide, light screen; nothing may have been complained about in the end."""
    chromium.size(*WIDE)
    chromium.open(f"{daemon.url}/#/jobs")
    chromium.run("location.reload()")
    chromium.wait(LIVE)
    chromium.wait("document.querySelectorAll('.row-link').length > 0")
    chromium.console()
    yield chromium


VIEWS = {
    "jobs": ("#/jobs", "document.querySelectorAll('.row-link').length >= 7"),
    "job": (
        "#/jobs/{running}",
        "document.querySelector('.chart .line') && document.querySelectorAll('.stack .c1').length > 0 &&"
        " [...document.querySelectorAll('.gallery img')].filter((i) => i.naturalWidth > 0).length === 4 &&"
        " document.querySelector('[data-key=swap] .stack')",
    ),
    "job-log": ("#/jobs/{done}/log", "document.querySelector('#log-lines')"),
    "job-history": ("#/jobs/{recovered}/history", "document.querySelectorAll('tr').length > 8"),
    "job-spec": ("#/jobs/{running}/spec", "document.querySelector('pre.spec')"),
    "job-failed": ("#/jobs/{failed}", "document.querySelector('.notice.bad')"),
    "queue": ("#/queue", "document.querySelectorAll('.row-link').length === 3"),
    "devices": ("#/devices", "document.querySelector('.panel .stack')"),
    "server": ("#/server", "document.querySelector('.panel .pairs')"),
}


def show(page, daemon, jobs, view):
    address, condition = VIEWS[view]
    page.run("location.hash = arguments[0]", address.format(**jobs))
    page.wait(condition, f"view {view}")
    # Two frames: what was asked for is drawn.
    page.run("return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_drawn_without_complaint(page, daemon, jobs, shots, view):
    show(page, daemon, jobs, view)
    height = page.run("return Math.min(2400, document.documentElement.scrollHeight)")
    page.size(WIDE[0], max(WIDE[1], height))
    page.screenshot(shots / f"{view}.png")
    assert page.console() == []


@pytest.mark.parametrize("view", VIEWS)
def test_narrow_screens_never_scroll_sideways(page, daemon, jobs, shots, view):
    page.size(*NARROW)
    show(page, daemon, jobs, view)
    wide, inner = page.run("return [document.documentElement.scrollWidth, innerWidth]")
    page.screenshot(shots / f"{view}-narrow.png")
    assert inner == NARROW[0]
    assert wide <= inner
    assert page.console() == []


@pytest.mark.parametrize("view", ["jobs", "job", "devices"])
def test_dark_mode_is_dark_and_legible(page, daemon, jobs, shots, view):
    page.size(*WIDE, dark=True)
    show(page, daemon, jobs, view)
    page.screenshot(shots / f"{view}-dark.png")
    luminance = """
      const value = (text) => {
        const [r, g, b] = text.match(/[\\d.]+/g).map((c) => c / 255).map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const style = getComputedStyle(document.body);
      return [value(style.backgroundColor), value(style.color)];
    """
    ground, text = page.run(luminance)
    assert ground < 0.05
    assert (text + 0.05) / (ground + 0.05) > 7  # as WCAG's level AAA counts


def test_the_overview_shows_what_the_worker_reports(page, daemon, jobs):
    """The figures that the fake worker makes up."""
    show(page, daemon, jobs, "job")
    page.wait("document.querySelector('[data-key=memory]').innerText.includes('7.37 GiB')")
    memory, swapping = page.run(
        "return ['memory', 'swap'].map((key) => document.querySelector(`[data-key=${key}]`).innerText.replace(/\\s+/g, ' '))"
    )
    assert "budget 8.00 GiB" in memory
    assert "activations 1.86 GiB 1.61 GiB 1.65 GiB" in memory  # planned, now, peak
    assert "link in use 70 %" in swapping
    assert "stalled 3.0 %" in swapping
    assert "A step 640 MiB" in swapping
    assert "In flight 1" in swapping


def test_the_page_is_small_and_asks_nobody_else(page, daemon, jobs):
    show(page, daemon, jobs, "job")
    sizes = page.run(
        "return performance.getEntriesByType('resource').map((e) => [e.name, e.decodedBodySize])"
    )
    assert all(name.startswith(daemon.url) for name, _ in sizes)
    static = sum(size for name, size in sizes if "/api/" not in name and "/metrics" not in name)
    assert 0 < static < MAX_PAGE_BYTES


def test_every_view_can_be_reached_by_keyboard(page, daemon, jobs):
    page.press("2")
    page.wait("location.hash === '#/queue' && document.querySelectorAll('.row-link').length === 3")
    page.press("j", "j", "k")
    page.wait("document.activeElement === document.querySelectorAll('.row-link')[0]")
    page.press("Enter")
    page.wait(f"location.hash === '#/jobs/{jobs['queued'][0]}' && document.querySelector('.job-head')")
    page.press("l")
    page.wait("location.hash.endsWith('/log')")
    page.press("s")
    page.wait("document.querySelector('pre.spec')")
    page.press("Escape")
    page.wait("location.hash === '#/jobs' && document.querySelectorAll('.row-link').length >= 7")
    page.press("/", *"sweep")
    page.wait("document.querySelectorAll('.row-link').length === 3")
    page.press("Escape", "3")
    page.wait("location.hash === '#/devices'")
    page.press("4")
    page.wait("location.hash === '#/server'")
    page.press("?")
    page.wait("document.getElementById('help').open")
    page.press("Escape")
    page.wait("!document.getElementById('help').open")
    page.press("1", "Tab")
    page.wait("document.activeElement !== document.body")
    assert page.console() == []


def test_focus_and_scroll_survive_updates(page, daemon, jobs):
    page.press("j", "j")
    page.run("window.held = document.activeElement")
    other = daemon.submit("comes-later", "steps=5", steps=5)
    page.wait(f"document.body.innerText.includes('{other}')")
    page.wait("document.activeElement === window.held")
    assert daemon.cli("cancel", other).returncode == 0
    page.wait("[...document.querySelectorAll('tr')].some((row) => row.innerText.includes('comes-later') && row.innerText.includes('Cancelled'))")


def test_a_search_marks_lines_of_the_log(page, daemon, jobs):
    show(page, daemon, jobs, "job-log")
    page.press("/", *"step 42")
    page.wait("document.querySelectorAll('#log-lines mark').length === 1")
    page.run("document.getElementById('only-hits').click()")
    page.wait("document.getElementById('log-lines').innerText.trim() === 'attempt 1 step 42 line 0'")


def test_the_spec_shown_is_one_that_submit_takes(page, daemon, jobs):
    show(page, daemon, jobs, "job-spec")
    text = page.run("return document.querySelector('pre.spec').textContent")
    file = daemon.directory / "copied.json"
    file.write_text(text)
    checked = daemon.cli("validate", str(file))
    assert checked.returncode == 0, checked.stderr


def test_a_job_that_is_not_there_says_so(page, daemon):
    page.run("location.hash = '#/jobs/no-such-job'")
    page.wait("document.body.innerText.includes('There is no such job')")


def test_a_silent_server_shows_how_old_the_data_is(page, daemon, jobs, shots):
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        page.wait("/^Data \\d+ s old$/.test(document.getElementById('link').textContent)", seconds=40)
        page.wait("!document.getElementById('banner').hidden")
        page.screenshot(shots / "jobs-stale.png")
        # What was there is still to be read.
        assert page.run("return document.querySelectorAll('.row-link').length") >= 7
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    page.wait(LIVE, seconds=40)


def test_a_lost_server_is_said_and_found_again(page, daemon, jobs, shots):
    """Last: the server dies and comes back."""
    daemon.stop(signal.SIGKILL)
    page.wait("document.getElementById('link').textContent === 'Disconnected'")
    page.wait("document.getElementById('banner').innerText.includes('No connection')")
    page.screenshot(shots / "jobs-disconnected.png")
    assert page.run("return document.querySelectorAll('.row-link').length") >= 7
    page.console()  # that requests failed is true
    daemon.start()
    page.wait(LIVE, seconds=60)
    page.wait("document.getElementById('banner').hidden")
    # It shows what is new, without having been loaded again.
    again = daemon.submit("after-the-restart", "steps=2", steps=2)
    page.wait(f"document.body.innerText.includes('{again}')")
