# SPDX-License-Identifier: Apache-2.0
"""fp8_scaled bases: codes and scales byte for byte, forward and gradients against dequantised weights, what is refused."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import digits_example
import reference_fp8
import reference_qwen_image as reference_model

FP32_TOLERANCE = 1e-4  # of the reference tensor's rms, as for plain weights
BLOCKS = 6
LINEARS = len(reference_model.LINEARS)
TYPES = (torch.bfloat16, torch.float16, torch.float32)
CASES = {case.name: case for case in reference_model.CASES}
# Width 64 is one run of 64 inputs; 96 is none, so most linears there have a scale per row (F077), and the MLP's inner
# width, 384, has six runs.
NAMES = ("odd_grid_masked", "frames_wide_heads")
PLACEMENTS = (
    ("--blocks_to_swap", 3, "--ring_size", 2),
    ("--blocks_to_swap", 5, "--ring_size", 1),
    ("--blocks_to_swap", 4, "--mode", "exchange"),
)


def as_type(dtype):
    return lambda state: {name: tensor.to(dtype) for name, tensor in state.items()}


@pytest.fixture(scope="module")
def references(tmp_path_factory, seed):
    directory = tmp_path_factory.mktemp("qwen_image")
    return {
        name: reference_model.build_reference(CASES[name], seed + 10 * index, directory / name)
        for index, name in enumerate(NAMES)
    }


@pytest.fixture(params=NAMES)
def reference(request, references):
    return references[request.param]


@pytest.fixture(scope="module")
def masked(references):
    return references["odd_grid_masked"]


@pytest.fixture(scope="module")
def probe(programs, tmp_path_factory):
    """Runs the probe on weights; returns (process, output path)."""
    directory = tmp_path_factory.mktemp("outputs")
    count = iter(range(10**6))

    def run(reference, weights, *arguments, dtype="fp32", check=True, grad=True):
        output = directory / f"output-{next(count)}.safetensors"
        command = ["probe", "--weights", weights, "--inputs", reference.inputs, "--outputs", output, "--dtype", dtype]
        command += ["--adapter", reference.adapter] + (["--grad"] if grad else [])
        return programs.run("blockswap-worker", *command, *arguments, check=check), output

    return run


IN_FLIGHT = ("--quantization", "fp8_scaled")


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_codes_and_scales_equal_the_published_rule(probe, reference, tmp_path, dtype):
    weights = reference_fp8.rewrite(reference.weights, as_type(dtype), tmp_path / "model")
    state = load_file(weights / "diffusion_pytorch_model.safetensors")
    for block, placement in ((0, ()), (3, ("--blocks_to_swap", 5)), (BLOCKS - 1, PLACEMENTS[1])):
        _, output = probe(reference, weights, *IN_FLIGHT, "--fp8_weights", block, *placement, grad=False)
        actual = load_file(output)
        names = [f"transformer_blocks.{block}.{linear}.weight" for linear in reference_model.LINEARS]
        assert sorted(name for name in actual if name.startswith("codes.")) == sorted(f"codes.{n}" for n in names)
        for name in names:
            codes, scale = reference_fp8.quantise(state[name])
            assert scale.dtype == dtype
            # Widening E4M3 and a 16-bit type to fp32 is exact and keeps the sign of zero, so equal bits there are
            # equal bytes here.
            held = actual[f"codes.{name}"].to(torch.float8_e4m3fn)
            assert torch.equal(held.view(torch.uint8), codes.view(torch.uint8)), name
            assert torch.equal(actual[f"scale.{name}"].reshape(-1), scale.float().reshape(-1)), name


@pytest.mark.parametrize("dtype", ("fp32", "bf16"))
def test_a_stored_checkpoint_gives_the_bytes_of_one_made_in_flight(probe, reference, tmp_path, dtype):
    plain = reference_fp8.rewrite(reference.weights, as_type(torch.bfloat16), tmp_path / "plain")
    stored = reference_fp8.rewrite(plain, reference_fp8.quantised_state, tmp_path / "stored")
    _, made = probe(reference, plain, *IN_FLIGHT, dtype=dtype)
    expected = made.read_bytes()
    assert probe(reference, stored, dtype=dtype)[1].read_bytes() == expected
    # Codes stay codes, and what is plain beside them is made so.
    assert probe(reference, stored, *IN_FLIGHT, dtype=dtype)[1].read_bytes() == expected


def test_outputs_and_gradients_equal_dequantised_weights(probe, reference, seed, tmp_path):
    """F077: forward, the input's gradient and the adapter's, against diffusers on what the codes stand for."""
    stored = reference_fp8.rewrite(reference.weights, reference_fp8.quantised_state, tmp_path / "stored")
    model = reference_model.random_model(reference.case, reference.seed)
    state = load_file(stored / "diffusion_pytorch_model.safetensors")
    model.load_state_dict(reference_fp8.plain_state(state))
    adapter, scales = reference_model.random_adapter(model, reference.seed + 1)
    expected = reference_model.expected_tensors(model, adapter, scales, load_file(reference.inputs))
    for placement in ((), *PLACEMENTS):
        actual = load_file(probe(reference, stored, *placement)[1])
        assert sorted(actual) == sorted(expected)
        for key, tensor in expected.items():
            error = (actual[key] - tensor).abs().max().item()
            rms = tensor.square().mean().sqrt().item()
            assert error <= FP32_TOLERANCE * rms, f"{placement} {key}: max error {error:.3g}, rms {rms:.3g}"
    # The codes are far from the plain weights, so the comparison above can fail.
    change = (expected["sample"] - reference.expected["sample"]).norm() / reference.expected["sample"].norm()
    assert change > 10 * FP32_TOLERANCE


def per_tensor(weight):
    scale = (weight.abs().max() / reference_fp8.LARGEST).reshape(1)
    return reference_fp8.encode(weight, scale), scale


def per_row(weight):
    scale = weight.abs().amax(1, keepdim=True) / reference_fp8.LARGEST
    return reference_fp8.encode(weight, scale), scale


def runs_of_32(weight):
    scale = weight.reshape(weight.shape[0], -1, 32).abs().amax(-1, keepdim=True) / reference_fp8.LARGEST
    return reference_fp8.encode(weight, scale), scale


@pytest.mark.parametrize("form", (reference_fp8.quantise, per_tensor, per_row, runs_of_32), ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", ("fp32", "bf16"))
def test_every_form_of_scales_gives_the_bytes_of_the_plain_weights(probe, masked, tmp_path, form, dtype):
    """Widened inside the op or stored wide: the same numbers, so the same bits."""
    stored = reference_fp8.rewrite(
        masked.weights, lambda state: reference_fp8.quantised_state(state, form), tmp_path / "stored"
    )
    plain = reference_fp8.rewrite(stored, reference_fp8.plain_state, tmp_path / "plain")
    _, expected = probe(masked, plain, dtype=dtype)
    for placement in ((), PLACEMENTS[0]):
        assert probe(masked, stored, *placement, dtype=dtype)[1].read_bytes() == expected.read_bytes()


@pytest.mark.parametrize("dtype", ("fp32", "bf16"))
def test_a_plain_cast_gives_the_bytes_of_the_values_it_stands_for(probe, masked, tmp_path, dtype):
    """F074: weights cast as a whole to E4M3, norms and biases too, without any scale; streamed and resident."""
    cast = reference_fp8.rewrite(masked.weights, as_type(torch.float8_e4m3fn), tmp_path / "cast")
    wide = reference_fp8.rewrite(cast, as_type(torch.float32), tmp_path / "wide")
    _, expected = probe(masked, wide, dtype=dtype)
    for placement in ((), *PLACEMENTS):
        assert probe(masked, cast, *placement, dtype=dtype)[1].read_bytes() == expected.read_bytes()


@pytest.mark.parametrize("placement", PLACEMENTS, ids=lambda p: "_".join(str(x).lstrip("-") for x in p))
def test_streamed_blocks_give_the_bytes_of_resident_ones(probe, reference, placement):
    _, resident = probe(reference, reference.weights, *IN_FLIGHT)
    done, streamed = probe(reference, reference.weights, *IN_FLIGHT, *placement)
    assert streamed.read_bytes() == resident.read_bytes()
    assert json.loads(done.stdout)["blocks_streamed"] == placement[1]


def test_codes_halve_the_bytes_on_device_and_link(probe, masked, tmp_path):
    """F074: of bf16 weights, with one scale for 64 of them; nothing of a streamed block stays behind."""
    weights = reference_fp8.rewrite(masked.weights, as_type(torch.bfloat16), tmp_path / "model")
    command = ("--blocks_to_swap", 4, "--ring_size", 2)
    wide = json.loads(probe(masked, weights, *command, dtype="bf16")[0].stdout)
    narrow = json.loads(probe(masked, weights, *command, *IN_FLIGHT, dtype="bf16")[0].stdout)
    assert narrow["loads"] == wide["loads"]
    for figure in ("h2d_bytes", "device_weight_bytes_peak", "host_master_bytes"):
        assert 0.5 < narrow[figure] / wide[figure] < 0.6, figure


# What is refused, by name.


def refusal(probe, masked, tmp_path, change, *words):
    weights = reference_fp8.rewrite(
        masked.weights, lambda state: change(reference_fp8.quantised_state(state)), tmp_path / "model"
    )
    done, output = probe(masked, weights, check=False)
    assert done.returncode > 0, "accepted, or ended by a signal"
    assert not output.exists()
    for word in words:
        assert word in done.stderr, done.stderr


LINEAR = "transformer_blocks.2.img_mlp.net.2"


@pytest.mark.parametrize(
    ("extra", "words"),
    (
        ("scaled_fp8", "ComfyUI's scaled fp8"),
        (f"{LINEAR}.comfy_quant", "ComfyUI's mixed quantisation"),
        (f"{LINEAR}.weight_scale", "fp8 with weight_scale keys"),
        (f"{LINEAR}.scale_input", "fp8 with scaled inputs"),
    ),
)
def test_refuses_other_formats_by_name(probe, masked, tmp_path, extra, words):
    refusal(probe, masked, tmp_path, lambda tensors: {**tensors, extra: torch.ones(1)}, words, extra)


def test_refuses_codes_without_scales(probe, masked, tmp_path):
    def change(tensors):
        del tensors[f"{LINEAR}.scale_weight"]
        return tensors

    refusal(probe, masked, tmp_path, change, f"{LINEAR}.weight", f"{LINEAR}.scale_weight")


def test_refuses_scales_that_do_not_divide_the_weight(probe, masked, tmp_path):
    wrong = torch.ones(64, 3, 1)
    refusal(
        probe, masked, tmp_path, lambda tensors: {**tensors, f"{LINEAR}.scale_weight": wrong},
        f"{LINEAR}.weight", "[64, 3, 1]", "[64, 256]",
    )  # fmt: skip


def test_refuses_the_other_eight_bit_float(probe, masked, tmp_path):
    codes = torch.zeros(64, 256).to(torch.float8_e5m2)
    refusal(probe, masked, tmp_path, lambda tensors: {**tensors, f"{LINEAR}.weight": codes}, "F8_E5M2")


def test_refuses_values_without_a_scale(probe, masked, tmp_path):
    def poison(state):
        state[f"{LINEAR}.weight"][5, 70] = float("nan")
        return state

    weights = reference_fp8.rewrite(masked.weights, poison, tmp_path / "model")
    done, _ = probe(masked, weights, *IN_FLIGHT, check=False)
    assert done.returncode > 0
    assert f"{LINEAR}.weight" in done.stderr and "not all finite" in done.stderr


# A training job.


@pytest.fixture(scope="module")
def roots(tmp_path_factory):
    models, datasets = tmp_path_factory.mktemp("models"), tmp_path_factory.mktemp("datasets")
    digits_example.copy_model(models)
    digits_example.write_dataset(datasets, count=4)
    return models, datasets


def train(programs, roots, directory, blocks, **model):
    models, datasets = roots
    spec = digits_example.job_spec("fp8", steps=2, blocks_to_swap=str(blocks))
    spec["model"].update(model)
    job = directory / f"job-{blocks}.json"
    job.write_text(json.dumps(spec))
    output = directory / f"output-{blocks}"
    programs.run(
        "blockswap-worker", "train", job, "--output", output, "--models", models, "--datasets", datasets,
    )  # fmt: skip
    return output


def test_every_number_of_swapped_blocks_quantises_the_same_layers(programs, roots, tmp_path):
    """F075: the count is in the log; equal adapters say that the same layers are meant."""
    adapters = []
    for blocks in (0, 3, 5):
        output = train(programs, roots, tmp_path, blocks, quantization="fp8_scaled")
        log = (output / "log.txt").read_text()
        assert f"fp8_scaled: {BLOCKS * LINEARS} of {BLOCKS * LINEARS} linears in the blocks" in log
        adapter = output / "fp8-lora.safetensors"
        adapters.append({name: tensor.numpy().tobytes() for name, tensor in load_file(adapter).items()})
        with safe_open(adapter, "pt") as file:
            assert file.metadata()["ss_fp8_base"] == "True"
    assert adapters[0] == adapters[1] == adapters[2]


def test_inspect_names_the_quantisation(programs, masked, tmp_path):
    stored = reference_fp8.rewrite(masked.weights, reference_fp8.quantised_state, tmp_path / "stored")
    report = json.loads(programs.run("blockswap-worker", "inspect", stored, "-o", "json").stdout)
    assert report["quantization"].startswith(f"fp8_scaled: {BLOCKS * LINEARS} of")
    assert report["stored_types"]["F8_E4M3"]["tensors"] == BLOCKS * LINEARS
    plain = json.loads(programs.run("blockswap-worker", "inspect", masked.weights, "-o", "json").stdout)
    assert plain["quantization"] == "none"
