# SPDX-License-Identifier: Apache-2.0
"""A real blockswapd with a state of its own: started, asked for its metrics, ended by a service manager or a crash."""

import os
import signal
import subprocess
import urllib.request

import grpc
import pytest

import digits_example

START_SECONDS = 60


class Daemon:
    """A blockswapd with its own state below a short directory (a socket's path has at most 107 bytes)."""

    def __init__(self, programs, directory, arguments=("--http", "127.0.0.1:0")):
        self.directory = directory
        self.state = directory / "state" / "blockswap"
        self.socket = directory / "run" / "blockswap" / "blockswapd.sock"
        for root in ("models", "datasets"):
            (self.state / root).mkdir(parents=True)
        (directory / "run").mkdir(mode=0o700)
        digits_example.copy_model(self.state / "models")
        digits_example.write_dataset(self.state / "datasets")
        self.command = [programs.path("blockswapd"), *arguments]
        self.log = open(directory / "daemon.log", "wb")
        self.start()

    def start(self):
        """The first, or the next one on the same state."""
        environment = {
            **os.environ,
            "XDG_STATE_HOME": str(self.directory / "state"),
            "XDG_RUNTIME_DIR": str(self.directory / "run"),
        }
        self.process = subprocess.Popen(
            self.command, env=environment, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log
        )
        # A connection of its own for each process: an old one waits longer and longer before it tries again.
        self.channel = grpc.secure_channel(
            f"unix:{self.socket}",
            grpc.local_channel_credentials(grpc.LocalConnectionType.UDS),
            options=[("grpc.use_local_subchannel_pool", 1)],
        )
        try:
            grpc.channel_ready_future(self.channel).result(timeout=START_SECONDS)
        except grpc.FutureTimeoutError:
            self.stop()
            pytest.fail(f"blockswapd did not come up:\n{self.log_text()}", pytrace=False)

    def log_text(self):
        return (self.directory / "daemon.log").read_text(errors="replace")

    def stop(self):
        """Ends the daemon as a service manager would; returns its exit status."""
        self.channel.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout=START_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self.log.close()

    def kill(self):
        """Ends the process as a crash would; the log stays open for the next one."""
        self.channel.close()
        self.process.kill()
        self.process.wait(timeout=START_SECONDS)

    def metrics(self):
        port = int((self.state / "http.port").read_text())
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
            return response.read().decode()
