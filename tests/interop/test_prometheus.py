# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus server scrapes a real blockswapd; dashboards and alerts name only what is exported."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

import grpc
import pytest
from google.protobuf import json_format

import digits_example
import prometheus_text

WAIT_SECONDS = 90
DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"
OTHERS = re.compile(r"^(DCGM_FI_DEV_[A-Z_]+|up)$")
# What stands in an expression beside names of metrics.
WORDS = set(
    """sum min max count avg by on and or unless ignoring group_left group_right offset without bool rate increase
    changes resets time timestamp vector histogram_quantile label_replace label_values clamp_min abs""".split()
)


def free_port():
    with contextlib.closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def wait_for(what, probe):
    """The first answer of probe that is true."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        try:
            found = probe()
        except (OSError, urllib.error.URLError, grpc.RpcError):
            found = None
        if found:
            return found
        time.sleep(0.2)
    pytest.fail(f"waited {WAIT_SECONDS} s for {what}", pytrace=False)


class Server:
    """A blockswapd that may be killed and started again on the same state and ports; its workers are fakes."""

    def __init__(self, programs, directory, api):
        self.programs, self.directory, self.api = programs, directory, api
        self.state = directory / "state" / "blockswap"
        self.port = free_port()
        for root in ("models", "datasets"):
            (self.state / root).mkdir(parents=True)
        (directory / "run").mkdir(mode=0o700)
        digits_example.copy_model(self.state / "models")
        digits_example.write_dataset(self.state / "datasets")
        self.log = open(directory / "daemon.log", "ab")
        self.start()

    def start(self):
        environment = dict(os.environ)
        environment["XDG_STATE_HOME"] = str(self.directory / "state")
        environment["XDG_RUNTIME_DIR"] = str(self.directory / "run")
        command = [self.programs.path("blockswapd"), "--http", f"127.0.0.1:{self.port}"]
        command += ["--worker", self.programs.path("fake_worker"), "--retry-backoff", "0.1", "--measure-links", "false"]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log
        )
        wait_for("the server", lambda: get(f"http://127.0.0.1:{self.port}/readyz"))
        options = (("grpc.use_local_subchannel_pool", 1),)
        self.channel = grpc.secure_channel(
            f"unix:{self.directory}/run/blockswap/blockswapd.sock",
            grpc.local_channel_credentials(grpc.LocalConnectionType.UDS),
            options,
        )
        self.training = self.api.training_stub(self.channel)

    def kill(self, number=signal.SIGKILL):
        self.channel.close()
        self.process.send_signal(number)
        self.process.wait(timeout=60)

    def metrics(self):
        return prometheus_text.parse(get(f"http://127.0.0.1:{self.port}/metrics"))

    def submit(self, script, name="job"):
        spec = json_format.ParseDict(digits_example.job_spec(), self.api.job.JobSpec())
        spec.name = name
        spec.labels["fake"] = script.replace(" ", "-").replace("=", ".")
        return self.training.CreateJob(self.api.training.CreateJobRequest(spec=spec), timeout=30)

    def job(self, name):
        return self.training.GetJob(self.api.training.GetJobRequest(name=name), timeout=10)

    def wait_state(self, job, state):
        wanted = getattr(self.api.event, f"JOB_STATE_{state}")
        wait_for(f"{job.name} {state}", lambda: self.job(job.name).state == wanted)

    def let_go(self, job):
        (pathlib.Path(job.output_directory) / "go").write_text("go")


class Prometheus:
    def __init__(self, directory, target):
        self.port = free_port()
        config = directory / "prometheus.yml"
        config.write_text(
            "global: {scrape_interval: 500ms, evaluation_interval: 1s}\n"
            f"rule_files: [{DEPLOY / 'prometheus' / 'blockswap.rules.yml'}]\n"
            f"scrape_configs: [{{job_name: blockswap, honor_labels: true, static_configs: [{{targets: ['127.0.0.1:{target}']}}]}}]\n"
        )
        self.log = open(directory / "prometheus.log", "wb")
        self.process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={directory / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
        )
        wait_for("Prometheus", lambda: get(f"http://127.0.0.1:{self.port}/-/ready"))

    def query(self, expression):
        """[(labels, value)]"""
        address = f"http://127.0.0.1:{self.port}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        answer = json.loads(get(address))
        assert answer["status"] == "success", answer
        return [(one["metric"], float(one["value"][1])) for one in answer["data"]["result"]]

    def value(self, expression):
        found = self.query(expression)
        return found[0][1] if found else None

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=30)
        self.log.close()


@pytest.fixture
def server(programs, api):
    directory = pathlib.Path(tempfile.mkdtemp(prefix="bsprom-", dir="/tmp"))
    started = Server(programs, directory, api)
    yield started
    if started.process.poll() is None:
        started.kill(signal.SIGTERM)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def prometheus(server):
    if shutil.which("prometheus") is None:
        pytest.fail("the Debian package prometheus is not installed", pytrace=False)
    started = Prometheus(server.directory, server.port)
    yield started
    started.stop()


def scraped(prometheus, expression, at_least):
    wait_for(f"{expression} >= {at_least}", lambda: (prometheus.value(expression) or 0) >= at_least)


def counters():
    """Names of all samples that may only grow."""
    for name, kind in prometheus_text.documented().items():
        if kind == "counter":
            yield name
        elif kind == "histogram":
            yield from (name + "_bucket", name + "_sum", name + "_count")


def falling_counters(prometheus):
    """Those that went down within the last minutes, and how often."""
    # One at a time: resets() drops the name, and then labels of two families may be the same.
    return [(name, labels, times) for name in counters() for labels, times in prometheus.query(f"resets({name}[10m]) > 0")]


def test_counters_go_on_through_a_worker_crash_and_begin_anew_with_a_new_server(server, prometheus):
    scraped(prometheus, 'up{job="blockswap"}', 1)
    job = server.submit("steps=10 save=1 hold_at=6 crash_at=8")
    scraped(prometheus, "sum(blockswap_train_steps_total)", 5)
    server.let_go(job)
    server.wait_state(job, "SUCCEEDED")
    scraped(prometheus, "blockswap_train_step", 10)
    scraped(prometheus, 'blockswap_worker_exits_total{cause="signal"}', 1)
    scraped(prometheus, 'blockswap_job_restarts_total{cause="worker_crash"}', 1)
    assert falling_counters(prometheus) == []
    # Five steps before the hold and 8 to 10 after the crash; what a killed worker did not get to report is not counted.
    first = prometheus.value("sum(blockswap_train_steps_total)")
    assert 8 <= first <= 10

    second = server.submit("steps=10 save=1 hold_at=6", name="second")
    scraped(prometheus, "sum(blockswap_train_steps_total)", first + 5)
    server.kill()
    wait_for("a failed scrape", lambda: prometheus.value('up{job="blockswap"}') == 0)
    server.start()
    wait_for("a scrape", lambda: prometheus.value('up{job="blockswap"}') == 1)
    server.let_go(second)
    server.wait_state(second, "SUCCEEDED")
    scraped(prometheus, 'blockswap_jobs{state="succeeded"}', 2)
    assert all(times == 1 for _, _, times in falling_counters(prometheus))
    # Whatever was asked: no rate is below zero.
    for name in counters():
        assert prometheus.query(f"rate({name}[2m]) < 0") == [], name


def test_job_joins_its_slots_series_through_the_info_series(server, prometheus):
    job = server.submit("steps=4 hold_at=3")
    scraped(prometheus, "blockswap_train_step", 2)
    (found,) = prometheus.query("blockswap_train_step * on(slot) group_left(job) blockswap_worker_info")
    assert found[0]["job"] == job.name.removeprefix("jobs/")
    server.let_go(job)
    server.wait_state(job, "SUCCEEDED")


# F051: names that break a text format do not reach it, and what reaches it round-trips.
@pytest.mark.parametrize(
    "name", ['quote " back \\ slash', "line\nfeed", "tab\there", "emoji \U0001f980", "x" * 10240, "}{,=\"} 1 2"]
)
def test_names_of_jobs_do_not_break_the_page(server, name):
    try:
        job = server.submit("steps=2 hold_at=2", name=name)
    except grpc.RpcError as refused:
        assert refused.code() == grpc.StatusCode.INVALID_ARGUMENT, refused
        server.metrics()
        return
    wait_for("its series", lambda: any(key[0] == "blockswap_worker_info" for key in server.metrics()))
    text = get(f"http://127.0.0.1:{server.port}/metrics")
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, capture_output=True)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
    (info,) = [dict(labels) for key, labels in prometheus_text.parse(text) if key == "blockswap_worker_info"]
    assert info["job"] == job.name.removeprefix("jobs/")
    assert name not in text
    server.let_go(job)


def test_every_exported_series_is_in_the_list(server):
    job = server.submit("steps=3 save=1")
    server.wait_state(job, "SUCCEEDED")
    unknown = {key[0] for key in server.metrics()} - prometheus_text.sample_names()
    assert unknown == set()


def names_in(expression):
    bare = re.sub(r'"(\\.|[^"\\])*"', "", expression)  # strings
    bare = re.sub(r"\{[^}]*\}", "", bare)  # selectors hold label names
    bare = re.sub(r"\b(by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)", " ", bare)
    bare = re.sub(r"\[[^\]]*\]|\boffset\s+\w+", " ", bare)
    bare = re.sub(r"\b\d[\w.]*", "", bare)  # numbers, 1e6 among them
    return set(re.findall(r"[a-zA-Z_:][a-zA-Z0-9_:]*", bare)) - WORDS


def dashboard_expressions():
    dashboard = json.loads((DEPLOY / "grafana" / "blockswap.json").read_text())
    found = [(panel["title"], target["expr"]) for panel in dashboard["panels"] for target in panel.get("targets", [])]
    found += [(mark["name"], mark["expr"]) for mark in dashboard["annotations"]["list"]]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            query = re.fullmatch(r"label_values\((.*), \w+\)", variable["query"]["query"])
            found.append((variable["name"], query[1]))
    return found


def test_every_panel_has_a_query_and_every_query_an_exported_name():
    dashboard = json.loads((DEPLOY / "grafana" / "blockswap.json").read_text())
    for panel in dashboard["panels"]:
        assert panel["type"] == "row" or panel["targets"], panel["title"]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for title, expression in dashboard_expressions():
        names = names_in(expression)
        assert names, title
        missing = {name for name in names - prometheus_text.sample_names() if not OTHERS.match(name)}
        assert not missing, f"{title}: {missing}"


def test_dashboard_shows_every_part_that_it_must():
    rows = [panel["title"] for panel in json.loads((DEPLOY / "grafana" / "blockswap.json").read_text())["panels"]]
    for part in ("Now", "Device memory", "Host memory", "Throughput", "Block swap", "Job", "GPU", "Server"):
        assert part in rows


def test_prometheus_takes_every_query_of_the_dashboard(prometheus):
    for title, expression in dashboard_expressions():
        for variable, value in (("$instance", ".*"), ("$gpu", ".*"), ("$job", ".*"), ("$__rate_interval", "1m")):
            expression = expression.replace(variable, value)
        try:
            prometheus.query(expression)
        except urllib.error.HTTPError as refused:
            pytest.fail(f"{title}: {expression}: {refused.read().decode()}", pytrace=False)


def test_alerts_name_exported_metrics_and_fire_as_they_should():
    rules = DEPLOY / "prometheus" / "blockswap.rules.yml"
    for command in (("check", "rules", rules), ("test", "rules", rules.with_name("blockswap.rules.test.yml"))):
        done = subprocess.run(["promtool", *map(str, command)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    text = rules.read_text()
    names = set(re.findall(r"\b(?:blockswap|grpc_server|process)_[a-z0-9_]+\b", re.sub(r"#.*|summary:.*|action:.*", "", text)))
    missing = {name for name in names - prometheus_text.sample_names() if not name.startswith("blockswap_rules")}
    assert missing == set()
    alerts = re.findall(r"alert: (\w+)", text)
    tested = set(re.findall(r"alertname: (\w+)", rules.with_name("blockswap.rules.test.yml").read_text()))
    assert set(alerts) == tested, "every alert has a test"
