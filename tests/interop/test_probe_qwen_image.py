# SPDX-License-Identifier: Apache-2.0
"""Holds `blockswap-worker probe` for Qwen-Image to diffusers and autograd: outputs, gradients, placements, file forms."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

import reference_qwen_image as reference_model

# Of the reference tensor's rms. diffusers in fp32 is itself about 1e-5 away from the same model in fp64.
FP32_TOLERANCE = 1e-4
BF16_TOLERANCE = 5e-2
BLOCKS = 6

PLACEMENTS = (
    ("--blocks_to_swap", 1, "--ring_size", 1),
    ("--blocks_to_swap", 3, "--ring_size", 2),
    ("--blocks_to_swap", 5, "--ring_size", 1),
    ("--blocks_to_swap", 5, "--ring_size", 2),
    ("--blocks_to_swap", 5, "--ring_size", 3),
    ("--blocks_to_swap", 5, "--ring_size", 9),
    ("--blocks_to_swap", 2, "--mode", "exchange"),
    ("--blocks_to_swap", 5, "--mode", "exchange"),
    ("--blocks_to_swap", 3, "--granularity", "layer"),
    ("--blocks_to_swap", 5, "--granularity", "layer"),
)


@pytest.fixture(scope="module")
def references(tmp_path_factory, seed):
    directory = tmp_path_factory.mktemp("qwen_image")
    return {
        case.name: reference_model.build_reference(case, seed + 10 * index, directory / case.name)
        for index, case in enumerate(reference_model.CASES)
    }


@pytest.fixture(params=[case.name for case in reference_model.CASES])
def reference(request, references):
    return references[request.param]


@pytest.fixture
def masked(references):
    return references["odd_grid_masked"]


class Probe:
    def __init__(self, programs, directory):
        self.programs = programs
        self.directory = directory
        self.count = 0

    def __call__(
        self, reference, *arguments, weights=None, inputs=None, adapter=True, grad=True, dtype="fp32", check=True
    ):
        """Returns (process, output path); the output is written to a new path each time."""
        self.count += 1
        output = self.directory / f"output-{self.count}.safetensors"
        command = ["probe", "--weights", weights or reference.weights, "--inputs", inputs or reference.inputs]
        command += ["--outputs", output, "--dtype", dtype]
        if adapter is True:
            adapter = reference.adapter
        if adapter:
            command += ["--adapter", adapter]
        if grad:
            command += ["--grad"]
        return self.programs.run("blockswap-worker", *command, *arguments, check=check), output


@pytest.fixture(scope="module")
def probe(programs, tmp_path_factory):
    return Probe(programs, tmp_path_factory.mktemp("outputs"))


@pytest.fixture(scope="module")
def resident_bytes(probe):
    """Returns the output file of a case with all blocks resident, in fp32 with gradients; each case runs once."""
    known = {}

    def of(reference):
        if reference.case.name not in known:
            known[reference.case.name] = probe(reference)[1].read_bytes()
        return known[reference.case.name]

    return of


def assert_matches(expected, path, tolerance=FP32_TOLERANCE):
    actual = load_file(path)
    assert sorted(actual) == sorted(expected)
    wrong = []
    for key, tensor in expected.items():
        assert actual[key].dtype == torch.float32, key
        assert actual[key].shape == tensor.shape, key
        rms = tensor.square().mean().sqrt().item()
        error = (actual[key] - tensor).abs().max().item()
        if not error <= tolerance * rms:
            wrong.append(f"{key}: max error {error:.3g}, rms {rms:.3g}")
    assert not wrong, f"{len(wrong)} of {len(expected)} tensors differ:\n" + "\n".join(wrong)


def test_outputs_and_gradients_equal_diffusers(probe, reference):
    _, output = probe(reference)
    assert_matches(reference.expected, output)


@pytest.mark.parametrize("placement", PLACEMENTS, ids=lambda p: "_".join(str(x).lstrip("-") for x in p))
def test_streamed_blocks_give_the_bytes_of_resident_ones(probe, reference, resident_bytes, placement):
    done, streamed = probe(reference, *placement)
    assert streamed.read_bytes() == resident_bytes(reference)
    assert json.loads(done.stdout)["blocks_streamed"] == placement[1]


def test_modulation_on_the_host_equals_diffusers(probe, reference):
    _, output = probe(reference, "--host_modulation", "on")
    assert_matches(reference.expected, output)


@pytest.mark.parametrize("granularity", ["block", "layer"])
def test_modulation_on_the_host_gives_the_same_bytes_streamed(probe, masked, granularity):
    on = ("--host_modulation", "on")
    done, resident = probe(masked, *on)
    streamed_done, streamed = probe(masked, *on, "--blocks_to_swap", 5, "--granularity", granularity)
    assert streamed.read_bytes() == resident.read_bytes()
    # A third of a block's weights never reaches the device.
    weights = json.loads(done.stdout)["device_weight_bytes_peak"]
    whole = json.loads(probe(masked)[0].stdout)["device_weight_bytes_peak"]
    assert 0.60 * whole < weights < 0.70 * whole
    assert json.loads(streamed_done.stdout)["device_weight_bytes_peak"] < weights


def test_the_same_command_gives_the_same_bytes(probe, masked):
    command = ("--blocks_to_swap", 4, "--ring_size", 2)
    assert probe(masked, *command)[1].read_bytes() == probe(masked, *command)[1].read_bytes()


def test_forward_only_writes_the_sample_alone(probe, masked):
    _, output = probe(masked, grad=False)
    assert_matches({"sample": masked.expected["sample"]}, output)


def test_forward_only_is_the_same_streamed(probe, masked):
    _, resident = probe(masked, grad=False)
    _, streamed = probe(masked, "--blocks_to_swap", 4, "--ring_size", 2, grad=False)
    assert streamed.read_bytes() == resident.read_bytes()


def test_without_adapter_only_the_input_gets_a_gradient(probe, masked):
    model = reference_model.random_model(masked.case, masked.seed)
    expected = reference_model.expected_tensors(model, {}, {}, load_file(masked.inputs))
    _, output = probe(masked, adapter=None)
    assert_matches(expected, output)


def test_gradients_of_every_base_weight_equal_diffusers(probe, reference):
    model = reference_model.random_model(reference.case, reference.seed)
    expected = reference_model.expected_weight_gradients(model, load_file(reference.inputs))
    assert len(expected) == 2 + len(list(model.named_parameters()))
    _, resident = probe(reference, "--weight_grad", adapter=None)
    assert_matches(expected, resident)
    _, streamed = probe(reference, "--weight_grad", "--blocks_to_swap", 5, "--ring_size", 1, adapter=None)
    assert streamed.read_bytes() == resident.read_bytes()


def test_bf16_gradients_of_base_weights_are_close(probe, masked):
    model = reference_model.random_model(masked.case, masked.seed)
    expected = reference_model.expected_weight_gradients(model, load_file(masked.inputs))
    _, output = probe(masked, "--weight_grad", adapter=None, dtype="bf16")
    actual = load_file(output)
    keys = [key for key in expected if key.startswith("grad.")]
    error = torch.cat([(actual[key] - expected[key]).flatten() for key in keys])
    assert error.norm() < BF16_TOLERANCE * torch.cat([expected[key].flatten() for key in keys]).norm()


def test_bf16_is_close(probe, reference):
    _, output = probe(reference, dtype="bf16")
    actual = load_file(output)
    for key in ("sample", "grad.hidden_states"):
        expected = reference.expected[key]
        error = (actual[key] - expected).norm() / expected.norm()
        assert error < BF16_TOLERANCE, f"{key}: relative error {error:.3g}"


def test_bf16_streamed_gives_the_bytes_of_resident(probe, masked):
    _, resident = probe(masked, dtype="bf16")
    _, streamed = probe(masked, "--blocks_to_swap", 5, "--ring_size", 2, dtype="bf16")
    assert streamed.read_bytes() == resident.read_bytes()


# What the report on standard output says.


def block_bytes(reference):
    model = reference_model.random_model(reference.case, reference.seed)
    return sum(p.numel() * p.element_size() for p in model.transformer_blocks[0].parameters())


def test_report_counts_the_copies_of_a_training_pass(probe, masked):
    report = json.loads(probe(masked, "--blocks_to_swap", 4, "--ring_size", 2)[0].stdout)
    assert report["blocks"] == BLOCKS
    assert report["blocks_streamed"] == 4
    # Forward loads every streamed block; backward finds the last two still in the ring.
    assert 4 <= report["loads"] <= 2 * 4 - 2
    assert report["h2d_bytes"] >= report["loads"] * block_bytes(masked)
    assert report["d2h_bytes"] == 0
    assert report["host_master_bytes"] >= 4 * block_bytes(masked)


def test_streaming_lowers_the_peak_of_device_weights(probe, masked):
    resident = json.loads(probe(masked)[0].stdout)
    streamed = json.loads(probe(masked, "--blocks_to_swap", 5, "--ring_size", 1)[0].stdout)
    assert resident["blocks_streamed"] == 0
    assert resident["loads"] == 0
    saved = resident["device_weight_bytes_peak"] - streamed["device_weight_bytes_peak"]
    # Five blocks leave the device and share one slot; alignment may cost a little.
    assert saved >= 3.9 * block_bytes(masked)


def test_exchange_moves_blocks_both_ways(probe, masked):
    report = json.loads(probe(masked, "--blocks_to_swap", 3, "--mode", "exchange")[0].stdout)
    assert report["h2d_bytes"] > 0
    assert report["d2h_bytes"] > 0


# The forms a checkpoint may have. Each must give the very bytes of the diffusers directory.


def state_dict(reference):
    return load_file(reference.weights / "diffusion_pytorch_model.safetensors")


@pytest.mark.parametrize("prefix", ("", "model.diffusion_model.", "diffusion_model.", "transformer."))
def test_single_file_with_prefix(probe, masked, resident_bytes, tmp_path, prefix):
    weights = tmp_path / "single.safetensors"
    save_file({prefix + key: tensor for key, tensor in state_dict(masked).items()}, weights)
    _, output = probe(masked, "--config", masked.weights / "config.json", weights=weights)
    assert output.read_bytes() == resident_bytes(masked)


def test_shards_with_an_index(probe, masked, resident_bytes, tmp_path):
    model = reference_model.random_model(masked.case, masked.seed)
    model.save_pretrained(tmp_path / "sharded", max_shard_size="300KB")
    index = tmp_path / "sharded" / "diffusion_pytorch_model.safetensors.index.json"
    assert len(set(json.loads(index.read_text())["weight_map"].values())) > 2
    for weights, config in ((tmp_path / "sharded", ()), (index, ("--config", tmp_path / "sharded" / "config.json"))):
        _, output = probe(masked, "--blocks_to_swap", 3, *config, weights=weights)
        assert output.read_bytes() == resident_bytes(masked)


def test_mixed_stored_types_are_widened_exactly(probe, masked, tmp_path):
    narrow = (torch.float32, torch.bfloat16, torch.float16)
    stored = {k: t.to(narrow[i % 3]) for i, (k, t) in enumerate(sorted(state_dict(masked).items()))}
    for name, tensors in (("mixed", stored), ("wide", {k: t.float() for k, t in stored.items()})):
        shutil.copytree(masked.weights, tmp_path / name)
        save_file(tensors, tmp_path / name / "diffusion_pytorch_model.safetensors")
    _, expected = probe(masked, weights=tmp_path / "wide")
    _, output = probe(masked, "--blocks_to_swap", 4, weights=tmp_path / "mixed")
    assert output.read_bytes() == expected.read_bytes()


# What is refused: a status other than 0, a message, and no output file.


def assert_refused(result, *words):
    done, output = result
    assert done.returncode > 0, "accepted, or ended by a signal"
    assert not output.exists()
    for word in words:
        assert word in done.stderr, done.stderr


def test_refuses_more_blocks_than_can_be_swapped(probe, masked):
    assert_refused(probe(masked, "--blocks_to_swap", BLOCKS, check=False), str(BLOCKS - 1))


def test_refuses_an_adapter_key_that_fits_no_module(probe, masked, tmp_path):
    adapter = load_file(masked.adapter)
    adapter["lora_unet_transformer_blocks_0_attn_nothing.lora_down.weight"] = torch.zeros(2, 64)
    save_file(adapter, tmp_path / "adapter.safetensors")
    assert_refused(probe(masked, adapter=tmp_path / "adapter.safetensors", check=False), "attn_nothing")


@pytest.mark.parametrize("change", ("missing", "unknown", "misshapen"))
def test_refuses_weights_that_are_not_the_model(probe, masked, tmp_path, change):
    tensors = state_dict(masked)
    key = "transformer_blocks.3.attn.to_q.weight"
    if change == "missing":
        del tensors[key]
    elif change == "unknown":
        key = "transformer_blocks.3.attn.to_x.weight"
        tensors[key] = torch.zeros(4, 4)
    else:
        tensors[key] = torch.zeros(64, 63)
    shutil.copytree(masked.weights, tmp_path / "changed")
    save_file(tensors, tmp_path / "changed" / "diffusion_pytorch_model.safetensors")
    assert_refused(probe(masked, weights=tmp_path / "changed", check=False), key)


def test_refuses_a_truncated_weights_file(probe, masked, tmp_path):
    shutil.copytree(masked.weights, tmp_path / "cut")
    file = tmp_path / "cut" / "diffusion_pytorch_model.safetensors"
    file.write_bytes(file.read_bytes()[:-4096])
    assert_refused(probe(masked, weights=tmp_path / "cut", check=False))


def test_refuses_inputs_without_text(probe, masked, tmp_path):
    inputs = load_file(masked.inputs)
    del inputs["encoder_hidden_states"]
    save_file(inputs, tmp_path / "inputs.safetensors")
    result = probe(masked, inputs=tmp_path / "inputs.safetensors", check=False)
    assert_refused(result, "encoder_hidden_states")
