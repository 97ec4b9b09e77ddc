# SPDX-License-Identifier: Apache-2.0
"""Full fine-tuning by `blockswap-worker train` beside the same training written with diffusers and torch's AdamW.

Streamed through two slots in fp32, with accumulation and clipping; every weight of the model file is compared.
"""

import json

import pytest
import torch
from diffusers import QwenImageTransformer2DModel
from safetensors.torch import load_file

import digits_example
import make_digits
import train_base
from test_reference_training import (
    BATCH,
    BETAS,
    CHANGE_TOLERANCE,
    DATASET_TOML,
    LOSS_TOLERANCE,
    MICRO_BATCHES,
    SEED,
    SHIFT,
    WEIGHT_DECAY,
    micro_batch,
)

STEPS = 5
LEARNING_RATE = 1e-3
MAX_GRAD_NORM = 0.4


@pytest.fixture(scope="module")
def roots(tmp_path_factory):
    """Returns (models root with digits-base, datasets root with one digit)."""
    models, datasets = tmp_path_factory.mktemp("models"), tmp_path_factory.mktemp("datasets")
    digits_example.copy_model(models)
    digits_example.write_dataset(datasets, count=1)
    (datasets / "digits.toml").write_text(DATASET_TOML)
    return models, datasets


@pytest.fixture(scope="module")
def trained(programs, roots, tmp_path_factory):
    """Trains with the worker, four of six blocks streamed; returns the output directory."""
    models, datasets = roots
    spec = digits_example.job_spec("full", steps=STEPS, mode="exchange")
    spec["model"]["dtype"] = "fp32"
    spec["network"] = {"type": "none"}
    spec["output"] = {"name": "digits-full"}
    spec["training"] = {
        "max_steps": STEPS,
        "learning_rate": LEARNING_RATE,
        "optimizer": {"type": "adamw", "beta1": BETAS[0], "beta2": BETAS[1], "weight_decay": WEIGHT_DECAY},
        "seed": SEED,
        "timestep_sampling": "shift",
        "discrete_flow_shift": SHIFT,
        "gradient_accumulation_steps": MICRO_BATCHES,
        "max_grad_norm": MAX_GRAD_NORM,
        "threads": 1,
    }
    return digits_example.train(programs, tmp_path_factory, spec, models, datasets)


@pytest.fixture(scope="module")
def replayed(roots):
    """Trains with torch; returns (losses, gradient norms before clipping, state dictionary)."""
    model = QwenImageTransformer2DModel.from_pretrained(roots[0] / "digits-base", torch_dtype=torch.float32)
    model.requires_grad_(True)
    weights = list(model.parameters())
    optimizer = torch.optim.AdamW(weights, lr=LEARNING_RATE, betas=BETAS, weight_decay=WEIGHT_DECAY)
    latents, classes = make_digits.upright_digits(1)
    clean = train_base.pack(torch.from_numpy(make_digits.inverted_slanted(latents))).expand(BATCH, -1, -1)
    text = torch.from_numpy(make_digits.text_embedding(classes[0])).expand(BATCH, -1, -1)
    losses, norms = [], []
    for step in range(1, STEPS + 1):
        for weight in weights:
            weight.grad = torch.zeros_like(weight)  # what has no path to the output still decays
        total = 0.0
        for number in range(MICRO_BATCHES):
            noise, times = micro_batch(step, number)
            noise = train_base.pack(noise)
            noisy = (1 - times[:, None, None]) * clean + times[:, None, None] * noise
            prediction = train_base.predict(model, noisy, times, text)
            loss = torch.nn.functional.mse_loss(prediction, noise - clean) / MICRO_BATCHES
            loss.backward()
            total += loss.item()
        losses.append(total)
        norms.append(torch.nn.utils.clip_grad_norm_(weights, MAX_GRAD_NORM).item())
        optimizer.step()
    return losses, norms, {key: value.detach() for key, value in model.state_dict().items()}


@pytest.fixture(scope="module")
def metrics(trained):
    return [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]


def test_losses_equal_torchs(metrics, replayed):
    assert [m["loss"] for m in metrics] == pytest.approx(replayed[0], rel=LOSS_TOLERANCE)


def test_gradient_norms_equal_torchs_and_clipping_took_part(metrics, replayed):
    assert [m["grad_norm"] for m in metrics] == pytest.approx(replayed[1], rel=1e-4)
    assert max(replayed[1]) > MAX_GRAD_NORM


def test_weights_equal_torchs(trained, replayed, roots):
    start = load_file(roots[0] / "digits-base" / "diffusion_pytorch_model.safetensors")
    end = load_file(trained / "digits-full.safetensors")
    assert sorted(end) == sorted(replayed[2]) == sorted(start)
    change = torch.cat([(replayed[2][k] - start[k].float()).flatten() for k in sorted(start)])
    error = torch.cat([(end[k] - replayed[2][k]).flatten() for k in sorted(start)])
    assert change.norm() > 0
    assert error.norm() <= CHANGE_TOLERANCE * change.norm()


def test_the_model_file_loads_into_diffusers(trained, replayed):
    config = json.loads((trained / "digits-full.config.json").read_text())
    model = QwenImageTransformer2DModel.from_config(config)
    model.load_state_dict(load_file(trained / "digits-full.safetensors"))
