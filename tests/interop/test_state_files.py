# SPDX-License-Identifier: Apache-2.0
"""F115: the files that a save writes are the files that a resume opens, seen from outside by strace."""

import re
import shutil
import subprocess

import digits_example
import pytest

OPENED = re.compile(r'openat\([^,]*, "([^"]*)", ([A-Z_|]+)[^)]*\) = (\d+)')
STEPS = 4


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    directory = tmp_path_factory.mktemp("state-files")
    digits_example.write_dataset(directory / "datasets", 8)
    return directory


def worker_command(programs, source_root, example, output):
    settings = (f"training.max_steps={STEPS}", "output.save_every_steps=2", "sampling.every_steps=0", "sampling.prompts=",
                "device=host")
    command = [programs.path("blockswap-worker"), "train", source_root / "deploy/examples/digits.yaml", "--models",
               source_root / "deploy/examples", "--datasets", example / "datasets", "--output", output]
    return [str(part) for part in command] + [part for setting in settings for part in ("--set", setting)]


def train(programs, source_root, example, output, run):
    """Trains under strace; returns what was opened below the checkpoints: (relative name, flags)."""
    trace = example / f"trace-{output.name}-{run}"
    command = ["strace", "-f", "-qq", "-e", "trace=openat", "-s", "4096", "-o", trace,
               *worker_command(programs, source_root, example, output)]
    process = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=240)
    assert process.returncode == 0, process.stderr
    opened = []
    for line in trace.read_text(errors="surrogateescape").splitlines():
        match = OPENED.search(line)
        if match and "/checkpoints/" in match.group(1):
            opened.append((match.group(1).split("/checkpoints/", 1)[1], match.group(2)))
    return opened


def names(opened, step, writing):
    """File names of one step's directory, whatever it was called while it was written."""
    found = set()
    for path, flags in opened:
        folder, _, name = path.partition("/")
        if f"{step:08d}" in folder and name and ("O_DIRECTORY" not in flags):
            if writing == ("O_WRONLY" in flags or "O_RDWR" in flags):
                # Files are written under a temporary name: .NAME.tmp-RANDOM
                found.add(re.sub(r"^\.(.*)\.tmp-[0-9a-f]+$", r"\1", name))
    return found


def test_F115_a_resume_opens_what_the_save_wrote(programs, source_root, example):
    if shutil.which("strace") is None:
        pytest.fail("strace is missing: run deploy/bootstrap.sh")
    output = example / "output"
    saved = train(programs, source_root, example, output, "first")
    step = output / "checkpoints" / "step-00000002"
    on_disk = {path.name for path in step.iterdir()}
    written = names(saved, 2, writing=True)
    assert written >= on_disk and on_disk, (written, on_disk)
    shutil.rmtree(output / "checkpoints" / f"step-{STEPS:08d}")
    resumed = train(programs, source_root, example, output, "again")
    assert names(resumed, 2, writing=False) == on_disk


def test_F115_a_state_file_that_nothing_would_open_is_an_error(programs, source_root, example):
    output = example / "extra"
    train(programs, source_root, example, output, "first")
    last = output / "checkpoints" / f"step-{STEPS:08d}"
    (last / "state-of-rank-1.safetensors").write_bytes(b"not in the manifest")
    done = subprocess.run(worker_command(programs, source_root, example, output), capture_output=True, text=True,
                          timeout=240)
    assert "state-of-rank-1.safetensors" in done.stderr, done.stderr
    assert done.returncode == 0, "an earlier checkpoint is there to go on from"
