# SPDX-License-Identifier: Apache-2.0
"""Where the binaries under test are, and the seed of the random models."""

import dataclasses
import os
import pathlib
import subprocess
import sys

import pytest

SOURCE_ROOT = pathlib.Path(__file__).resolve().parents[1]
DEFAULT_SEED = 20260801
PROGRAM_TIMEOUT_SECONDS = 240


@dataclasses.dataclass
class Programs:
    directory: pathlib.Path

    def path(self, name):
        program = self.directory / name
        if not program.exists():
            pytest.fail(f"{program} does not exist: build it, or set BLOCKSWAP_BIN_DIR", pytrace=False)
        return program

    def run(self, name, *arguments, check=True, **keywords):
        """Runs a program to its end; with check, a failure shows what it said."""
        command = [str(self.path(name)), *map(str, arguments)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PROGRAM_TIMEOUT_SECONDS, **keywords
        )
        if check and done.returncode != 0:
            pytest.fail(f"{' '.join(command)}\nexit status {done.returncode}\n{done.stderr}", pytrace=False)
        return done


@pytest.fixture(scope="session")
def programs():
    default = SOURCE_ROOT / "build" / "release" / "bin"
    return Programs(pathlib.Path(os.environ.get("BLOCKSWAP_BIN_DIR", default)))


@pytest.fixture(scope="session")
def source_root():
    return SOURCE_ROOT


@pytest.fixture(scope="session")
def seed():
    value = int(os.environ.get("BLOCKSWAP_TEST_SEED", DEFAULT_SEED))
    print(f"seed {value} (set BLOCKSWAP_TEST_SEED to repeat a run)", file=sys.stderr)
    return value


def pytest_report_header(config):
    return f"blockswap seed: {os.environ.get('BLOCKSWAP_TEST_SEED', DEFAULT_SEED)}"
