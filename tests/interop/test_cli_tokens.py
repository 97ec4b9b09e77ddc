# SPDX-License-Identifier: Apache-2.0
"""blockswap over the Unix socket and over TLS, with the tokens that it makes itself."""

import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import tempfile
import time

import pytest

START_SECONDS = 60
DENIED = 8


def make_certificate(directory):
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-keyout", "tls.key", "-out", "tls.crt", "-days", "1", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(command, cwd=directory, check=True, capture_output=True)
    os.chmod(directory / "tls.key", 0o600)


class Server:
    def __init__(self, programs, directory):
        self.programs, self.directory = programs, directory
        make_certificate(directory)
        self.socket = directory / "run" / "d.sock"
        command = [programs.path("blockswapd"), "--state-dir", directory / "state", "--socket", self.socket]
        command += ["--http", "off", "--measure-links", "false", "--listen", "localhost:0"]
        command += ["--tls-certificate", directory / "tls.crt", "--tls-key", directory / "tls.key"]
        self.log = open(directory / "log", "w")
        self.process = subprocess.Popen([str(word) for word in command], stderr=self.log)
        port_file = directory / "state" / "grpc.port"
        deadline = time.monotonic() + START_SECONDS
        port = ""
        while not port.endswith("\n"):
            assert time.monotonic() < deadline, "the server did not start"
            try:
                self.process.wait(timeout=0.02)
                pytest.fail((directory / "log").read_text(), pytrace=False)
            except subprocess.TimeoutExpired:
                port = port_file.read_text() if port_file.exists() else ""
        self.port = int(port)

    def run(self, *words, check=True, tcp=False, token=None, ca=True):
        address = f"localhost:{self.port}" if tcp else f"unix:{self.socket}"
        environment = {key: value for key, value in os.environ.items() if not key.startswith("BLOCKSWAP_")}
        environment["BLOCKSWAP_SERVER"] = address
        # Contexts of whoever runs the tests are not theirs.
        environment["XDG_CONFIG_HOME"] = str(self.directory / "config")
        if ca:
            environment["BLOCKSWAP_TLS_CA"] = str(self.directory / "tls.crt")
        if token is not None:
            environment["BLOCKSWAP_TOKEN_FILE"] = str(token)
        return self.programs.run("blockswap", *words, check=check, env=environment)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout=START_SECONDS) == 0
        self.log.close()


@pytest.fixture(scope="module")
def server(programs):
    # Short: a socket's path has at most 107 bytes.
    directory = pathlib.Path(tempfile.mkdtemp(prefix="bs-tok-", dir="/tmp"))
    running = Server(programs, directory)
    yield running
    running.stop()
    shutil.rmtree(directory)


def make_token(server, name, role):
    path = server.directory / f"{name}.token"
    made = server.run("token", "create", "--name", name, "--role", role, "--out", path)
    assert made.stdout == ""
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    return path


def test_a_token_opens_tls_with_its_role(server):
    viewer = make_token(server, "viewer", "viewer")
    admin = make_token(server, "admin", "admin")
    assert json.loads(server.run("list", "-o", "json", tcp=True, token=viewer).stdout) is not None
    denied = server.run("token", "list", check=False, tcp=True, token=viewer)
    assert denied.returncode == DENIED and "ACCESS_DENIED" in denied.stderr
    listed = server.run("token", "list", tcp=True, token=admin).stdout
    assert "viewer" in listed and viewer.read_text().strip() not in listed


def test_a_token_is_shown_once_and_nothing_else_on_standard_output(server):
    made = server.run("token", "create", "--name", "shown", "--role", "submitter", "--tenant", "vision", "--expires", "1h")
    assert made.stdout.startswith("bst_") and made.stdout.count("\n") == 1
    tokens = json.loads(server.run("token", "list", "-o", "json").stdout)["tokens"]
    shown = next(token for token in tokens if token["display_name"] == "shown")
    assert shown["role"] == "submitter" and shown["tenant"] == "vision" and shown["expire_time"]
    again = server.run("token", "create", "--name", "shown", "--role", "viewer", check=False)
    assert again.returncode != 0 and "TOKEN_EXISTS" in again.stderr


def test_a_revoked_token_is_out(server):
    token = make_token(server, "gone", "viewer")
    server.run("list", tcp=True, token=token)
    server.run("token", "revoke", "gone", "-y")
    refused = server.run("list", check=False, tcp=True, token=token)
    assert refused.returncode == DENIED and "TOKEN_INVALID" in refused.stderr


def test_without_a_token_or_with_an_open_file_nothing_is_sent(server):
    nothing = server.run("list", check=False, tcp=True)
    assert nothing.returncode != 0 and "--token-file" in nothing.stderr
    token = make_token(server, "open", "viewer")
    os.chmod(token, 0o644)
    readable = server.run("list", check=False, tcp=True, token=token)
    assert readable.returncode != 0 and "chmod 0600" in readable.stderr


def test_a_server_that_cannot_prove_itself_gets_no_token(server):
    token = make_token(server, "careful", "viewer")
    assert server.run("list", check=False, tcp=True, token=token, ca=False).returncode != 0


def test_tokens_narrow_the_socket_and_every_change_is_on_record(server):
    token = make_token(server, "narrow", "viewer")
    assert server.run("token", "list", check=False, token=token).returncode == DENIED
    assert server.run("token", "list").returncode == 0
    lines = [json.loads(line) for line in (server.directory / "state" / "audit.jsonl").read_text().splitlines()]
    refused = [line for line in lines if line["caller"] == "narrow" and line["decision"] == "ACCESS_DENIED"]
    assert refused and refused[0]["rpc"] == "AdminService/ListTokens" and refused[0]["peer"].startswith("unix:")
    assert any(line["rpc"] == "AdminService/CreateToken" and line["decision"] == "allowed" for line in lines)
    text = (server.directory / "state" / "audit.jsonl").read_text() + (server.directory / "log").read_text()
    assert "bst_" not in text


def test_a_context_names_the_server_and_what_it_is_shown(server):
    token = make_token(server, "context", "viewer")
    address = f"localhost:{server.port}"
    added = server.run("context", "add", "lab", "--server", address, "--token-file", token,
                       "--tls-ca", server.directory / "tls.crt", ca=False)
    assert "bst_" not in added.stdout + added.stderr
    kept = server.directory / "config" / "blockswap" / "contexts.yaml"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600 and "bst_" not in kept.read_text()
    server.run("context", "use", "lab", ca=False)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("BLOCKSWAP_")}
    environment["XDG_CONFIG_HOME"] = str(server.directory / "config")
    assert server.programs.run("blockswap", "list", env=environment).returncode == 0
    denied = server.programs.run("blockswap", "token", "list", env=environment, check=False)
    assert denied.returncode == DENIED and "ACCESS_DENIED" in denied.stderr
    view = json.loads(server.programs.run("blockswap", "config", "view", "--origin", "-o", "json", env=environment).stdout)
    settings = {setting["key"]: (setting["value"], setting["origin"]) for setting in view["settings"]}
    assert settings["server"] == (address, "context lab")
    assert settings["token_file"] == (str(token), "context lab")


def test_tcp_without_tls_is_a_usage_error(server, programs):
    refused = programs.run("blockswapd", "--listen", "127.0.0.1:0", check=False)
    assert refused.returncode == 2 and "tls_certificate" in refused.stderr
