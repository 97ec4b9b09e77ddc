# SPDX-License-Identifier: Apache-2.0
"""What diffusers and autograd say a small random Qwen-Image model with a LoRA computes: the reference of the probe.

A Case describes one model and one input; Reference holds its files and expected tensors. The LoRA is applied here by
its definition, base(x) + up(down(x)) * alpha / r, and not by peft, so that peft's conventions are not part of the proof.
"""

import dataclasses
import math
import pathlib
import random

import torch
from diffusers import QwenImageTransformer2DModel
from safetensors.torch import save_file

LINEARS = (
    "attn.to_q",
    "attn.to_k",
    "attn.to_v",
    "attn.to_out.0",
    "attn.add_q_proj",
    "attn.add_k_proj",
    "attn.add_v_proj",
    "attn.to_add_out",
    "img_mlp.net.0.proj",
    "img_mlp.net.2",
    "txt_mlp.net.0.proj",
    "txt_mlp.net.2",
    "img_mod.1",
    "txt_mod.1",
)

SMALL = dict(
    patch_size=2,
    in_channels=16,
    out_channels=4,
    num_layers=6,
    attention_head_dim=16,
    num_attention_heads=4,
    joint_attention_dim=24,
    axes_dims_rope=(4, 6, 6),
)
WIDE_HEADS = dict(
    patch_size=2,
    in_channels=8,
    out_channels=2,
    num_layers=6,
    attention_head_dim=32,
    num_attention_heads=3,
    joint_attention_dim=20,
    axes_dims_rope=(8, 12, 12),
)


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    config: dict
    images: tuple  # (frames, height, width) in tokens of each image
    text_tokens: int
    text_lengths: tuple  # valid text tokens of each sample; its length is the batch size
    masked: bool


CASES = (
    Case("odd_grid_masked", SMALL, ((1, 3, 5),), 7, (7, 4), masked=True),
    Case("two_images", SMALL, ((1, 3, 5), (1, 4, 2)), 6, (6, 6), masked=False),
    Case("zero_cond_t", {**SMALL, "zero_cond_t": True}, ((1, 3, 5), (1, 4, 2)), 5, (2, 5), masked=True),
    Case("frames_wide_heads", WIDE_HEADS, ((2, 3, 4),), 5, (5,), masked=False),
    Case("batch_of_three", WIDE_HEADS, ((1, 4, 4),), 6, (1, 6, 3), masked=True),
)


def random_model(case, seed):
    """Default initialisation, with every norm weight and bias moved away from its neutral value."""
    torch.manual_seed(seed)
    model = QwenImageTransformer2DModel(**case.config).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        if "norm" in name and name.endswith(".weight") and parameter.dim() == 1:
            parameter.normal_(1.0, 0.3)
        elif name.endswith(".bias"):
            parameter.normal_(0.0, 0.2)
    return model


def adapter_prefix(path):
    return "lora_unet_" + path.replace(".", "_")


def random_adapter(model, seed):
    """Adapters on most linears of all blocks, of mixed rank; alpha is given, zero or missing (the last two mean r)."""
    choose = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    tensors, scales = {}, {}
    for block in range(len(model.transformer_blocks)):
        for position, linear in enumerate(LINEARS):
            # Every kind of linear has an adapter in at least one block; about a fifth of the modules are left out.
            if choose.random() < 0.2 and block != position % len(model.transformer_blocks):
                continue
            path = f"transformer_blocks.{block}.{linear}"
            module = model.get_submodule(path)
            rank = choose.choice((1, 2, 4, 5))
            prefix = adapter_prefix(path)
            down = torch.randn(rank, module.in_features, generator=generator) / math.sqrt(module.in_features)
            up = torch.randn(module.out_features, rank, generator=generator) * (0.3 / math.sqrt(rank))
            tensors[f"{prefix}.lora_down.weight"] = down
            tensors[f"{prefix}.lora_up.weight"] = up
            alpha = choose.choice((None, 0.0, 1.0, 2.5, float(rank)))
            if alpha is not None:
                tensors[f"{prefix}.alpha"] = torch.tensor(alpha)
            scales[path] = (alpha or rank) / rank
    return tensors, scales


def random_inputs(case, seed):
    generator = torch.Generator().manual_seed(seed)
    batch = len(case.text_lengths)
    image_tokens = sum(math.prod(shape) for shape in case.images)
    inputs = {
        "hidden_states": torch.randn(batch, image_tokens, case.config["in_channels"], generator=generator),
        "timestep": torch.rand(batch, generator=generator),
        "encoder_hidden_states": torch.randn(
            batch, case.text_tokens, case.config["joint_attention_dim"], generator=generator
        ),
        "img_shapes": torch.tensor([case.images] * batch, dtype=torch.int64),
    }
    if case.masked:
        lengths = torch.tensor(case.text_lengths)[:, None]
        inputs["encoder_hidden_states_mask"] = (torch.arange(case.text_tokens)[None] < lengths).to(torch.int64)
    outputs = case.config["patch_size"] ** 2 * case.config["out_channels"]
    inputs["grad_output"] = torch.randn(batch, image_tokens, outputs, generator=generator)
    return inputs


def add_adapters(model, adapter, scales):
    """Adds adapter (a dictionary of musubi keys) to the linears of model for good; its tensors may require gradients."""
    for path, scale in scales.items():
        prefix = adapter_prefix(path)
        down, up = adapter[f"{prefix}.lora_down.weight"], adapter[f"{prefix}.lora_up.weight"]

        def add(module, arguments, output, down=down, up=up, scale=scale):
            return output + (arguments[0] @ down.T @ up.T) * scale

        model.get_submodule(path).register_forward_hook(add)


def expected_tensors(model, adapter, scales, inputs):
    """Runs model with adapter; returns the tensors that the probe must write with --grad."""
    weights = {k: v.clone().requires_grad_(True) for k, v in adapter.items() if not k.endswith(".alpha")}
    add_adapters(model, weights, scales)
    hidden_states = inputs["hidden_states"].clone().requires_grad_(True)
    sample = model(
        hidden_states=hidden_states,
        encoder_hidden_states=inputs["encoder_hidden_states"],
        encoder_hidden_states_mask=inputs.get("encoder_hidden_states_mask"),
        timestep=inputs["timestep"],
        img_shapes=[[tuple(shape) for shape in shapes] for shapes in inputs["img_shapes"].tolist()],
        return_dict=False,
    )[0]
    sample.backward(inputs["grad_output"])
    expected = {"sample": sample.detach(), "grad.hidden_states": hidden_states.grad}
    for key, weight in weights.items():
        # The text stream of the last block does not reach the output.
        expected[f"grad.{key}"] = torch.zeros_like(weight) if weight.grad is None else weight.grad
    return expected


def expected_weight_gradients(model, inputs):
    """Runs model without an adapter; returns what the probe must write with --grad --weight_grad besides the rest."""
    model.requires_grad_(True)
    expected = expected_tensors(model, {}, {}, inputs)
    for name, parameter in model.named_parameters():
        expected[f"grad.{name}"] = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    return expected


@dataclasses.dataclass
class Reference:
    case: Case
    seed: int
    weights: pathlib.Path  # diffusers directory
    inputs: pathlib.Path
    adapter: pathlib.Path
    expected: dict


def build_reference(case, seed, directory):
    """Writes the files of a case into directory and computes what must come out."""
    directory.mkdir(parents=True, exist_ok=True)
    model = random_model(case, seed)
    model.save_pretrained(directory / "model")
    adapter, scales = random_adapter(model, seed + 1)
    inputs = random_inputs(case, seed + 2)
    save_file(adapter, directory / "adapter.safetensors")
    save_file(inputs, directory / "inputs.safetensors")
    return Reference(
        case,
        seed,
        directory / "model",
        directory / "inputs.safetensors",
        directory / "adapter.safetensors",
        expected_tensors(model, adapter, scales, inputs),
    )
