# SPDX-License-Identifier: Apache-2.0
"""What clients need: the stubs of proto/ and a daemon to call."""

import pathlib
import tempfile

import pytest

from daemon_process import Daemon
from proto_stubs import make_stubs


@pytest.fixture(scope="session")
def api(source_root, tmp_path_factory):
    return make_stubs(source_root, tmp_path_factory.mktemp("stubs"))


@pytest.fixture(scope="module")
def daemon(programs):
    with tempfile.TemporaryDirectory(prefix="bs") as directory:
        running = Daemon(programs, pathlib.Path(directory))
        yield running
        status = running.stop()
        assert status == 0, running.log_text()


@pytest.fixture(scope="module")
def training(daemon, api):
    return api.training_stub(daemon.channel)
