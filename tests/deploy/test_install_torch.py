# SPDX-License-Identifier: Apache-2.0
"""deploy/install-torch.sh: what it installs, once, whole or not at all. pip is replaced: the real wheel is 4 GB."""

import os
import pathlib
import subprocess

import pytest

FAKE_PYTHON = """#!/bin/sh
# python3 -m pip --version, or an install whose list of packages comes on standard input
[ "$3" = --version ] && exit 0
while [ $# -gt 0 ]; do [ "$1" = --target ] && target="$2"; shift; done
cat > "$target/packages.txt"
echo ran >> "$FAKE_LOG"
mkdir -p "$target/torch/lib"
exit "${FAKE_STATUS:-0}"
"""


@pytest.fixture
def installer(tmp_path, source_root):
    tools = tmp_path / "tools"
    tools.mkdir()
    python = tools / "python3"
    python.write_text(FAKE_PYTHON)
    python.chmod(0o755)
    log = tmp_path / "log"
    log.touch()

    def run(status=0):
        environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "FAKE_LOG": str(log),
                       "FAKE_STATUS": str(status)}
        return subprocess.run([source_root / "deploy/install-torch.sh", "--prefix", tmp_path / "usr"],
                              env=environment, capture_output=True, text=True)

    run.site = tmp_path / "usr/lib/blockswap/site"
    run.times = lambda: len(log.read_text().splitlines())
    return run


def packages(site: pathlib.Path):
    return [line.split("==")[0] for line in (site / "packages.txt").read_text().splitlines() if "==" in line]


def test_it_takes_torch_and_its_libraries_by_hash_and_nothing_else(installer):
    done = installer()
    assert done.returncode == 0, done.stderr
    names = packages(installer.site)
    assert "torch" in names and "nvidia-cublas" in names
    assert all(name == "torch" or name.startswith("nvidia-") for name in names)
    assert (installer.site / "packages.txt").read_text().count("--hash=sha256:") >= len(names)
    assert oct(installer.site.stat().st_mode)[-3:] == "755"


def test_a_second_run_does_nothing(installer):
    assert installer().returncode == 0
    assert installer().returncode == 0
    assert installer.times() == 1


def test_a_failed_run_leaves_what_was_there(installer):
    assert installer().returncode == 0
    (installer.site / ".complete").write_text("of another lock\n")
    (installer.site / "mark").touch()
    assert installer(status=1).returncode != 0
    assert (installer.site / "mark").exists()
    assert [path.name for path in installer.site.parent.iterdir()] == ["site"]
    assert installer().returncode == 0
    assert not (installer.site / "mark").exists()
    assert [path.name for path in installer.site.parent.iterdir()] == ["site"]
