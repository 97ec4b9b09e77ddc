# SPDX-License-Identifier: Apache-2.0
"""musubi's fp8_scaled format by its published rule, with torch's own float8_e4m3fn: the reference of our own conversion.

A weight [out, in] is divided into runs of 64 inputs (rows where 64 does not divide in; the whole tensor where it is no
matrix). A run's scale is its largest magnitude / 448 in the weight's type, at least 1e-8; its codes are the values over
the scale in fp32, clamped and rounded to E4M3. Stored are the codes under the weight's name and the scales under
`.scale_weight`.
"""

import torch
from safetensors.torch import load_file, save_file

RUN = 64
LARGEST = 448.0


def runs_of(weight):
    if weight.dim() != 2:
        return weight.reshape(1, -1)
    if weight.shape[1] % RUN:
        return weight
    return weight.reshape(weight.shape[0], -1, RUN)


def scale_shape(weight):
    return runs_of(weight).shape[:-1] + (1,) if weight.dim() == 2 else ()


def encode(weight, scale):
    """Codes of weight for given scales, which cover equal runs of it."""
    runs = weight.float().reshape(scale.numel(), -1)
    scaled = torch.nan_to_num(runs / scale.float().reshape(-1, 1), nan=0.0)
    return scaled.clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn).reshape(weight.shape)


def quantise(weight):
    """Returns (codes, scales)."""
    scale = (runs_of(weight).abs().amax(-1, keepdim=True) / LARGEST).clamp(min=1e-8).reshape(scale_shape(weight))
    return encode(weight, scale), scale


def dequantise(codes, scale):
    """The weight an op multiplies with, in fp32."""
    return (codes.float().reshape(scale.numel(), -1) * scale.float().reshape(-1, 1)).reshape(codes.shape)


def is_target(name):
    """The layers musubi quantises of a Qwen-Image model."""
    return (
        name.endswith(".weight")
        and "transformer_blocks" in name
        and not any(part in name for part in ("norm", "time_text_embed"))
    )


def scale_name(name):
    return name.removesuffix(".weight") + ".scale_weight"


def quantised_state(state, quantise_one=quantise):
    """The tensors of a musubi checkpoint for those of a plain one."""
    tensors = {}
    for name, weight in state.items():
        tensors[name] = weight
        if is_target(name):
            tensors[name], tensors[scale_name(name)] = quantise_one(weight)
    return tensors


def plain_state(tensors):
    """The plain fp32 tensors that a quantised checkpoint stands for."""
    return {
        name: dequantise(tensor, tensors[scale_name(name)]) if tensor.dtype == torch.float8_e4m3fn else tensor
        for name, tensor in tensors.items()
        if not name.endswith(".scale_weight")
    }


def rewrite(directory, change, target):
    """Copies a diffusers directory with its tensors changed."""
    target.mkdir()
    (target / "config.json").write_bytes((directory / "config.json").read_bytes())
    name = "diffusion_pytorch_model.safetensors"
    changed = change(load_file(directory / name))
    save_file({key: tensor.contiguous() for key, tensor in changed.items()}, target / name)
    return target
