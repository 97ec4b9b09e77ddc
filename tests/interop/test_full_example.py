# SPDX-License-Identifier: Apache-2.0
"""The full fine-tuning example under its budget: the losses and the model of a resident run, and a model that learns."""

import json
import math

import pytest
import yaml
from safetensors import safe_open

import digits_example

STEPS = 8
JOB_FILE = digits_example.EXAMPLES / "digits-full.yaml"
BYTES_PER_PARAMETER = 2 + 2 + 4 + 4  # bf16 weight and gradient, both moments


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    directory = tmp_path_factory.mktemp("datasets")
    digits_example.write_dataset(directory, count=32)
    return directory


@pytest.fixture(scope="module")
def train(programs, datasets, tmp_path_factory):
    def run(name, *overrides):
        """Returns (lines of metrics.jsonl, bytes of the model file)."""
        output = tmp_path_factory.mktemp(name)
        settings = [f"training.max_steps={STEPS}", "training.threads=1", "training.scheduler.type=constant"]
        settings += ["sampling.every_steps=0", "sampling.prompts=", *overrides]
        arguments = [argument for setting in settings for argument in ("--set", setting)]
        programs.run(
            "blockswap-worker", "train", JOB_FILE, "--output", output, "--models", digits_example.EXAMPLES,
            "--datasets", datasets, *arguments,
        )  # fmt: skip
        lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
        return lines, (output / "digits-full.safetensors")

    return run


def parameters():
    with safe_open(digits_example.EXAMPLES / "digits-base" / "diffusion_pytorch_model.safetensors", "np") as file:
        return sum(math.prod(file.get_slice(key).get_shape()) for key in file.keys())


def budget_bytes():
    text = yaml.safe_load(JOB_FILE.read_text())["memory"]["vram_budget"]
    assert text.endswith("MiB")
    return float(text.removesuffix("MiB")) * 2**20


def tensors(path):
    with safe_open(path, "pt") as file:
        return {key: file.get_tensor(key) for key in file.keys()}


def test_the_example_fits_below_its_state_and_equals_the_resident_run(train):
    assert budget_bytes() < parameters() * BYTES_PER_PARAMETER / 4
    lines, model = train("budget")
    resident_lines, resident_model = train("resident", "memory.vram_budget=auto", "memory.blocks_to_swap=0")
    assert [line["loss"] for line in lines] == [line["loss"] for line in resident_lines]
    assert [line["grad_norm"] for line in lines] == [line["grad_norm"] for line in resident_lines]
    assert len(lines) == STEPS
    assert all(line["device_bytes_peak"] <= budget_bytes() for line in lines)
    assert max(line["device_bytes_peak"] for line in resident_lines) > budget_bytes()
    assert sum(line["h2d_bytes"] for line in lines) > 0
    ours, theirs = tensors(model), tensors(resident_model)
    assert sorted(ours) == sorted(theirs)
    assert all(ours[key].equal(theirs[key]) for key in ours)
