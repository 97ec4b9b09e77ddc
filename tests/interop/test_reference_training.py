# SPDX-License-Identifier: Apache-2.0
"""`blockswap-worker train` beside the same training written with diffusers, transformers' schedule and torch's AdamW.

Only the random numbers are not torch's: noise and times come from the worker's counters, written again in
counter_random.py. The run starts from an adapter file, so its initial values are no part of the comparison.
"""

import json

import numpy as np
import pytest
import torch
from diffusers import QwenImageTransformer2DModel
from safetensors.torch import load_file, save_file
from transformers import get_cosine_schedule_with_warmup

import counter_random
import digits_example
import make_digits
import reference_qwen_image as reference_model
import train_base

STEPS = 6
WARMUP = 2
MICRO_BATCHES = 2
BATCH = 3
SEED = 77
LEARNING_RATE = 2e-3
SHIFT = 2.2
BETAS = (0.9, 0.98)
WEIGHT_DECAY = 0.05
MAX_GRAD_NORM = 0.4
LOSS_TOLERANCE = 1e-5
# Of the adapter's whole change. Adam divides by the gradient's size, so it magnifies noise where gradients are tiny.
CHANGE_TOLERANCE = 2e-3

# One item in all places, so that the order of items does not matter; noise and times still differ from place to place.
DATASET_TOML = f"""\
[general]
resolution = [64, 64]
caption_extension = ".txt"

[[datasets]]
image_directory = "images"
cache_directory = "cache"
batch_size = {BATCH}
num_repeats = {BATCH * MICRO_BATCHES}
"""


@pytest.fixture(scope="module")
def roots(tmp_path_factory, seed):
    """Returns (models root with digits-base and start.safetensors, datasets root with one digit)."""
    models, datasets = tmp_path_factory.mktemp("models"), tmp_path_factory.mktemp("datasets")
    digits_example.copy_model(models)
    digits_example.write_dataset(datasets, count=1)
    (datasets / "digits.toml").write_text(DATASET_TOML)
    generator = torch.Generator().manual_seed(seed)
    model = QwenImageTransformer2DModel.from_pretrained(models / "digits-base")
    adapter = {}
    for path, module in adapted_modules(model).items():
        prefix = reference_model.adapter_prefix(path)
        adapter[f"{prefix}.lora_down.weight"] = torch.randn(4, module.in_features, generator=generator) * 0.1
        adapter[f"{prefix}.lora_up.weight"] = torch.randn(module.out_features, 4, generator=generator) * 0.1
        adapter[f"{prefix}.alpha"] = torch.tensor(2.0)
    save_file(adapter, models / "start.safetensors")
    return models, datasets


def adapted_modules(model):
    paths = (f"transformer_blocks.{i}.{linear}" for i in range(6) for linear in reference_model.LINEARS)
    return {path: model.get_submodule(path) for path in paths}


@pytest.fixture(scope="module")
def trained(programs, roots, tmp_path_factory):
    """Trains with the worker, four of six blocks streamed; returns the output directory."""
    models, datasets = roots
    spec = digits_example.job_spec("replay", steps=STEPS)
    spec["model"]["dtype"] = "fp32"
    spec["network"] = {"type": "lora", "rank": 4, "alpha": 2, "weights": "start.safetensors"}
    spec["training"] = {
        "max_steps": STEPS,
        "learning_rate": LEARNING_RATE,
        "optimizer": {"type": "adamw", "beta1": BETAS[0], "beta2": BETAS[1], "weight_decay": WEIGHT_DECAY},
        "scheduler": {"type": "cosine", "warmup_steps": WARMUP},
        "seed": SEED,
        "timestep_sampling": "shift",
        "discrete_flow_shift": SHIFT,
        "gradient_accumulation_steps": MICRO_BATCHES,
        "max_grad_norm": MAX_GRAD_NORM,
        "threads": 1,
    }
    return digits_example.train(programs, tmp_path_factory, spec, models, datasets)


def micro_batch(step, number):
    """Returns (noise [B, 8, 8], times [B]) of a micro-batch; step counts from 1."""
    noises, times = [], []
    for sample in range(number * BATCH, (number + 1) * BATCH):
        noises.append(counter_random.normals(SEED, step, sample, counter_random.NOISE, 64).reshape(8, 8))
        drawn = float(counter_random.normals(SEED, step, sample, counter_random.TIMESTEP, 1)[0])
        unit = 1 / (1 + np.exp(-drawn))
        times.append(SHIFT * unit / (1 + (SHIFT - 1) * unit))
    return torch.from_numpy(np.stack(noises)), torch.tensor(times, dtype=torch.float32)


@pytest.fixture(scope="module")
def replayed(roots):
    """Trains with torch; returns (losses, gradient norms before clipping, learning rates, adapter)."""
    models, _ = roots
    adapter = load_file(models / "start.safetensors")
    weights = {k: t.clone().requires_grad_(True) for k, t in adapter.items() if not k.endswith(".alpha")}
    model = QwenImageTransformer2DModel.from_pretrained(models / "digits-base", torch_dtype=torch.float32)
    model.requires_grad_(False)
    reference_model.add_adapters(model, weights, dict.fromkeys(adapted_modules(model), 2 / 4))
    optimizer = torch.optim.AdamW(list(weights.values()), lr=LEARNING_RATE, betas=BETAS, weight_decay=WEIGHT_DECAY)
    schedule = get_cosine_schedule_with_warmup(optimizer, WARMUP, STEPS)
    latents, classes = make_digits.upright_digits(1)
    clean = train_base.pack(torch.from_numpy(make_digits.inverted_slanted(latents))).expand(BATCH, -1, -1)
    text = torch.from_numpy(make_digits.text_embedding(classes[0])).expand(BATCH, -1, -1)
    losses, norms, rates = [], [], []
    for step in range(1, STEPS + 1):
        optimizer.zero_grad(set_to_none=False)
        for weight in weights.values():
            weight.grad = torch.zeros_like(weight)  # a module without a path to the output still decays
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
        norms.append(torch.nn.utils.clip_grad_norm_(weights.values(), MAX_GRAD_NORM).item())
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return losses, norms, rates, {k: w.detach() for k, w in weights.items()}


@pytest.fixture(scope="module")
def metrics(trained):
    return [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]


def test_losses_equal_torchs(metrics, replayed):
    assert [m["loss"] for m in metrics] == pytest.approx(replayed[0], rel=LOSS_TOLERANCE)


def test_gradient_norms_equal_torchs_and_clipping_took_part(metrics, replayed):
    assert [m["grad_norm"] for m in metrics] == pytest.approx(replayed[1], rel=1e-4)
    assert max(replayed[1]) > MAX_GRAD_NORM


def test_learning_rates_equal_transformers(metrics, replayed):
    assert [m["learning_rate"] for m in metrics] == pytest.approx(replayed[2], rel=1e-12, abs=1e-15)


def test_adapter_equals_torchs(trained, replayed, roots):
    start, end = load_file(roots[0] / "start.safetensors"), load_file(trained / "replay-lora.safetensors")
    keys = sorted(replayed[3])
    assert sorted(k for k in end if not k.endswith(".alpha")) == keys
    change = torch.cat([(replayed[3][k] - start[k]).flatten() for k in keys])
    error = torch.cat([(end[k] - replayed[3][k]).flatten() for k in keys])
    assert change.norm() > 0
    assert error.norm() <= CHANGE_TOLERANCE * change.norm()
