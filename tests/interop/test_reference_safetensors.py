# SPDX-License-Identifier: Apache-2.0
"""The adapter that `blockswap-worker train` writes, as the safetensors package and musubi-tuner's rules see it."""

import hashlib
import json
import math
import re

import pytest
import torch
from diffusers import QwenImageTransformer2DModel
from safetensors import safe_open
from safetensors.torch import load_file

import digits_example
import reference_qwen_image as reference_model

STEPS = 2
RANK = 16
# All 14 linears of each block, whatever the example leaves out.
ADAPTER = (f"network.rank={RANK}", f"network.alpha={RANK}", "network.exclude_patterns=[]")
MUSUBI_KEY = re.compile(r"lora_unet_[a-z0-9_]+\.(lora_down\.weight|lora_up\.weight|alpha)")


@pytest.fixture(scope="module")
def datasets_root(tmp_path_factory):
    directory = tmp_path_factory.mktemp("datasets")
    digits_example.write_dataset(directory)
    return directory


@pytest.fixture(scope="module")
def train(programs, datasets_root, tmp_path_factory):
    """Trains the example for two steps with the given settings; returns the output directory."""

    def run(*settings, check=True):
        output = tmp_path_factory.mktemp("outputs")
        command = ["train", digits_example.JOB_FILE, "--output", output, "--models", digits_example.EXAMPLES]
        command += ["--datasets", datasets_root, "--set", f"training.max_steps={STEPS}", "--set", "training.threads=1"]
        for setting in ("sampling.every_steps=0", "sampling.prompts=", *ADAPTER, *settings):
            command += ["--set", setting]
        programs.run("blockswap-worker", *command, check=check)
        return output

    return run


@pytest.fixture(scope="module")
def output(train):
    return train("memory.vram_budget=auto", "memory.blocks_to_swap=4")


@pytest.fixture
def adapter_file(output):
    return output / "digits-lora.safetensors"


def losses(output):
    return [json.loads(line)["loss"] for line in (output / "metrics.jsonl").read_text().splitlines()]


def test_the_package_opens_the_file_and_finds_musubi_keys(adapter_file):
    with safe_open(adapter_file, "pt") as file:
        keys = list(file.keys())
    assert all(MUSUBI_KEY.fullmatch(key) for key in keys), keys
    assert len(keys) == 3 * digits_example.ADAPTED_MODULES


def test_every_adapter_fits_the_module_its_name_says(adapter_file):
    tensors = load_file(adapter_file)
    model = QwenImageTransformer2DModel.from_pretrained(digits_example.EXAMPLES / "digits-base")
    for block in range(len(model.transformer_blocks)):
        for linear in reference_model.LINEARS:
            path = f"transformer_blocks.{block}.{linear}"
            module, prefix = model.get_submodule(path), reference_model.adapter_prefix(path)
            assert tensors[f"{prefix}.lora_down.weight"].shape == (RANK, module.in_features)
            assert tensors[f"{prefix}.lora_up.weight"].shape == (module.out_features, RANK)
            assert tensors[f"{prefix}.alpha"].shape == ()
            assert tensors[f"{prefix}.alpha"].item() == RANK
    assert {t.dtype for t in tensors.values()} == {torch.float32}


def test_training_moved_what_has_a_gradient_and_nothing_else(adapter_file):
    tensors = load_file(adapter_file)
    still = sorted(k for k, t in tensors.items() if k.endswith("lora_up.weight") and not t.any())
    # lora_up starts at zero. In the last block nothing of the text stream after attention reaches the output.
    last = "lora_unet_transformer_blocks_5_"
    assert still == [
        f"{last}{name}.lora_up.weight"
        for name in ("attn_add_q_proj", "attn_to_add_out", "txt_mlp_net_0_proj", "txt_mlp_net_2")
    ]


def test_metadata_is_musubis(adapter_file):
    with safe_open(adapter_file, "pt") as file:
        metadata = file.metadata()
    assert metadata["ss_network_dim"] == str(RANK)
    assert float(metadata["ss_network_alpha"]) == RANK
    assert metadata["ss_steps"] == str(STEPS)
    assert metadata["ss_seed"] == "42"
    assert metadata["modelspec.architecture"] == "Qwen-Image/lora"
    json.loads(metadata["ss_datasets"])
    raw = adapter_file.read_bytes()
    body = raw[8 + int.from_bytes(raw[:8], "little") :]
    assert metadata["sshs_model_hash"] == hashlib.sha256(body).hexdigest()


def test_metrics_have_one_finite_loss_a_step(output):
    assert len(losses(output)) == STEPS
    assert all(math.isfinite(loss) and loss > 0 for loss in losses(output))


@pytest.mark.parametrize(
    "settings",
    (
        ("memory.blocks_to_swap=0",),
        ("memory.blocks_to_swap=5", "memory.ring_size=1"),
        ("memory.blocks_to_swap=3", "memory.ring_size=3"),
        ("memory.blocks_to_swap=2", "memory.mode=exchange"),
        ("memory.blocks_to_swap=5", "memory.pinned_memory=never"),
    ),
    ids=lambda settings: "_".join(settings),
)
def test_losses_and_adapter_are_the_same_bits_for_every_placement(train, output, adapter_file, settings):
    other = train("memory.vram_budget=auto", *settings)
    assert losses(other) == losses(output)
    expected, actual = load_file(adapter_file), load_file(other / "digits-lora.safetensors")
    assert sorted(actual) == sorted(expected)
    assert [k for k in expected if not torch.equal(actual[k], expected[k])] == []


def test_the_probe_reads_the_trained_adapter(programs, adapter_file, tmp_path, seed):
    """Computes the digits model with the trained adapter, beside diffusers with the same file."""
    model = QwenImageTransformer2DModel.from_pretrained(
        digits_example.EXAMPLES / "digits-base", torch_dtype=torch.float32
    ).requires_grad_(False)
    case = reference_model.Case("digits", dict(model.config), ((1, 4, 4),), 4, (4, 4, 4), masked=False)
    inputs = reference_model.random_inputs(case, seed)
    reference_model.save_file(inputs, tmp_path / "inputs.safetensors")
    programs.run(
        "blockswap-worker", "probe", "--weights", digits_example.EXAMPLES / "digits-base", "--dtype", "fp32", "--inputs",
        tmp_path / "inputs.safetensors", "--outputs", tmp_path / "outputs.safetensors", "--adapter", adapter_file,
    )  # fmt: skip
    adapter = load_file(adapter_file)
    scales = {
        f"transformer_blocks.{block}.{linear}": 1.0 for block in range(6) for linear in reference_model.LINEARS
    }
    expected = reference_model.expected_tensors(model, adapter, scales, inputs)["sample"]
    actual = load_file(tmp_path / "outputs.safetensors")["sample"]
    assert (actual - expected).abs().max() <= 1e-4 * expected.square().mean().sqrt()
