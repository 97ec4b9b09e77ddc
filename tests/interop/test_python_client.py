# SPDX-License-Identifier: Apache-2.0
"""The Python package as a user installs it: built as a wheel, against a real blockswapd."""

import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import grpc
import pytest

import digits_example

JOB_SECONDS = 120


def installed_files(source_root, directory):
    """Builds the wheel of client/python without the network, from a copy, and unpacks it."""
    copy = pathlib.Path(directory) / "client/python"
    shutil.copytree(source_root / "client/python", copy, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    (pathlib.Path(directory) / "proto").symlink_to(source_root / "proto")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "-w", directory,
         copy], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = pathlib.Path(directory).glob("blockswap-*.whl")
    site = pathlib.Path(directory) / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


@pytest.fixture(scope="module")
def blockswap(source_root, tmp_path_factory):
    site = installed_files(source_root, tmp_path_factory.mktemp("wheel"))
    assert (site / "blockswap/py.typed").exists() and (site / "blockswap/v1/training_pb2.pyi").exists()
    # Another module of the tests makes stubs of the same name.
    shadowed = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "blockswap"}
    sys.path.insert(0, str(site))
    try:
        import blockswap as package

        yield package
    finally:
        sys.path.remove(str(site))
        for name in [name for name in sys.modules if name.split(".")[0] == "blockswap"]:
            del sys.modules[name]
        sys.modules.update(shadowed)


@pytest.fixture(scope="module")
def client(blockswap, daemon):
    with blockswap.Client(f"unix:{daemon.socket}") as connected:
        yield connected


@pytest.fixture(scope="module")
def finished(client):
    job = client.submit(digits_example.job_spec("finished", steps=4))
    events = list(client.watch(job, timeout=JOB_SECONDS))
    return client.wait(job, timeout=JOB_SECONDS), events


def test_a_plan_needs_no_job(client):
    response = client.plan(digits_example.job_spec("planned"), overrides={"memory.blocks_to_swap": 4})
    assert response.plan.blocks_to_swap == 4
    assert not list(client.list('name:planned'))


def test_a_job_is_watched_to_its_end(blockswap, client, finished):
    job, events = finished
    assert job.progress.step == job.progress.total_steps == 4
    numbers = [event.sequence for event in events if event.sequence]
    assert numbers == sorted(numbers)
    assert client.get(job.name).state == job.state == client.get(job).state
    assert job.name in [each.name for each in client.list("terminal")]
    loss = client.metrics(job, "loss")["loss"]
    assert [step for step, _ in loss] == [1, 2, 3, 4]


def test_logs_come_in_pieces_and_can_be_tailed(client, finished):
    job, _ = finished
    text = b"".join(client.logs(job))
    assert text
    last = b"".join(client.logs(job, tail=1))
    assert text.endswith(last) and last.count(b"\n") == 1
    assert b"".join(client.logs(job, follow=True)) == text


def test_a_watch_goes_on_by_token(client, finished):
    job, events = finished
    middle = next(event for event in events if event.resume_token)
    rest = list(client.watch(job, snapshot=False, resume_token=middle.resume_token))
    assert [event.sequence for event in rest if event.sequence] == \
        [event.sequence for event in events if event.sequence > middle.sequence]


def test_the_same_request_id_makes_one_job(client):
    spec = digits_example.job_spec("twice", steps=1)
    first, second = (client.submit(spec, request_id="6a5a2f0e-5d6f-4f4e-8a44-111111111111") for _ in range(2))
    assert first.uid == second.uid
    client.wait(first, timeout=JOB_SECONDS)


def test_errors_have_code_reason_and_violations(blockswap, client):
    with pytest.raises(blockswap.Error) as caught:
        client.get("not-there")
    assert (caught.value.code, caught.value.reason) == (grpc.StatusCode.NOT_FOUND, "JOB_NOT_FOUND")
    with pytest.raises(blockswap.Error) as caught:
        client.submit(digits_example.job_spec("wrong"), overrides={"network.rank": -1, "training.max_steps": -1})
    assert caught.value.reason == "SPEC_INVALID"
    fields = {violation.field for violation in caught.value.violations}
    assert any("rank" in field for field in fields) and any("max_steps" in field for field in fields)
    with pytest.raises(ValueError, match="ring_sice"):
        client.submit(digits_example.job_spec("wrong"), overrides={"memory.ring_sice": 1})


def test_a_cancelled_job_is_an_exception(blockswap, client):
    job = client.submit(digits_example.job_spec("cancelled", steps=100000))
    client.cancel(job, now=True, reason="a test")
    with pytest.raises(blockswap.JobCancelled) as caught:
        client.wait(job, timeout=JOB_SECONDS)
    assert caught.value.job.uid == job.uid


def test_waiting_ends_with_the_time_given(client):
    job = client.submit(digits_example.job_spec("endless", steps=100000))
    with pytest.raises(TimeoutError):
        client.wait(job, timeout=0.5)
    client.cancel(job, now=True)


def test_files_and_dictionaries_are_the_same(blockswap, tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text("name: digits\nmemory: {blocks_to_swap: 4, verify_weights: true, vram_budget: 3.9MiB}\n")
    spec = blockswap.load_spec(file, {"training.seed": 7})
    assert spec.memory.blocks_to_swap == "4" and spec.training.seed == 7
    assert blockswap.load_spec(spec) == spec
    assert blockswap.load_spec(os.fspath(file)) == blockswap.load_spec(
        {"name": "digits", "memory": {"blocks_to_swap": 4, "verify_weights": True, "vram_budget": "3.9MiB"}})


def test_no_server_is_unavailable(blockswap, tmp_path):
    with blockswap.Client(f"unix:{tmp_path}/nobody.sock") as alone, pytest.raises(blockswap.Error) as caught:
        alone.devices()
    assert caught.value.code == grpc.StatusCode.UNAVAILABLE
    with pytest.raises(ValueError, match="takes a token"):
        blockswap.Client("localhost:1234")


def test_devices_are_listed(client):
    assert any(device.name == "devices/host" for device in client.devices())
