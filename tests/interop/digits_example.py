# SPDX-License-Identifier: Apache-2.0
"""The digits example as test data: its dataset, its model, and its job with other settings."""

import json
import pathlib
import shutil
import subprocess
import sys

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "examples"
sys.path.insert(0, str(EXAMPLES))  # make_digits and train_base are imported by the tests
JOB_FILE = EXAMPLES / "digits.yaml"
ADAPTED_MODULES = 6 * 14


def train(programs, tmp_path_factory, spec, models, datasets):
    """Trains spec with the worker and no server; returns the output directory."""
    output = tmp_path_factory.mktemp("output")
    job = tmp_path_factory.mktemp("job") / "job.json"
    job.write_text(json.dumps(spec))
    programs.run(
        "blockswap-worker", "train", job, "--output", output, "--models", models, "--datasets", datasets,
    )  # fmt: skip
    return output


def write_dataset(directory, count=48):
    """Writes the inverted, slanted digits below directory, which serves as datasets root."""
    command = [sys.executable, EXAMPLES / "make_digits.py", "--output", directory, "--count", str(count)]
    subprocess.run(command, check=True, capture_output=True)


def copy_model(models_root):
    """Copies the committed base model, so that a server's root need not contain the source tree."""
    shutil.copytree(EXAMPLES / "digits-base", models_root / "digits-base")


def job_spec(name="digits", steps=3, **memory):
    """The example's spec as a dictionary in the form of the job file."""
    return {
        "name": name,
        "model": {"architecture": "qwen_image", "weights": "digits-base", "dtype": "bf16"},
        "dataset": {"config": "digits.toml"},
        "network": {"type": "lora", "rank": 16, "alpha": 16},
        "training": {
            "max_steps": steps,
            "learning_rate": 1e-3,
            "seed": 42,
            "timestep_sampling": "shift",
            "discrete_flow_shift": 2.2,
            "threads": 1,
        },
        "memory": {"blocks_to_swap": "4", **memory},
        "output": {"name": f"{name}-lora"},
        "device": "host",
    }
