#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains digits-base, the small Qwen-Image model of the example, on scikit-learn's upright digits.

The model is diffusers' QwenImageTransformer2DModel with 6 blocks of width 96 and one latent channel (see CONFIG). It
is trained from scratch by flow matching: x_t = (1 - t) x0 + t noise, target noise - x0, and the model's time is t.
The result is saved in bf16 in diffusers' layout, and is what deploy/examples/digits-base holds.
"""

import argparse
import pathlib
import time

import numpy as np
import torch
from diffusers import QwenImageTransformer2DModel
from PIL import Image

import make_digits

CONFIG = dict(
    patch_size=2,
    in_channels=4,
    out_channels=1,
    num_layers=6,
    attention_head_dim=32,
    num_attention_heads=3,
    joint_attention_dim=make_digits.TEXT_WIDTH,
    axes_dims_rope=(8, 12, 12),
)
GRID = 4  # 8x8 cells, packed 2x2
SAMPLE_SHIFT = 2.2


def pack(latents_BHW):
    """[B, 8, 8] -> [B, 16, 4]; inside a token the order is (channel, y, x)."""
    batch = latents_BHW.shape[0]
    x = latents_BHW.reshape(batch, GRID, 2, GRID, 2)
    return x.permute(0, 1, 3, 2, 4).reshape(batch, GRID * GRID, 4)


def unpack(tokens_BSC):
    batch = tokens_BSC.shape[0]
    x = tokens_BSC.reshape(batch, GRID, GRID, 2, 2)
    return x.permute(0, 1, 3, 2, 4).reshape(batch, 2 * GRID, 2 * GRID)


def predict(model, x, t, text):
    return model(
        hidden_states=x,
        encoder_hidden_states=text,
        timestep=t,
        img_shapes=[[(1, GRID, GRID)]] * x.shape[0],
        return_dict=False,
    )[0]


def train(model, latents, text, classes, options):
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
    generator = torch.Generator().manual_seed(options.seed)
    started, recent = time.monotonic(), []
    for step in range(1, options.steps + 1):
        chosen = torch.randint(len(latents), (options.batch,), generator=generator)
        x0 = latents[chosen]
        noise = torch.randn(x0.shape, generator=generator)
        t = torch.rand(options.batch, generator=generator)
        x = torch.lerp(x0, noise, t[:, None, None])
        loss = torch.nn.functional.mse_loss(predict(model, x, t, text[classes[chosen]]), noise - x0)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        recent = (recent + [loss.item()])[-100:]
        if step % 100 == 0:
            print(f"step {step} loss {np.mean(recent):.4f} {time.monotonic() - started:.0f} s", flush=True)


@torch.no_grad()
def sample(model, text, classes, seed, steps=20):
    """Euler steps from noise to a digit of each class."""
    x = torch.randn(len(classes), GRID * GRID, 4, generator=torch.Generator().manual_seed(seed))
    sigmas = torch.linspace(1.0, 0.0, steps + 1)
    sigmas = SAMPLE_SHIFT * sigmas / (1 + (SAMPLE_SHIFT - 1) * sigmas)
    for now, following in zip(sigmas[:-1], sigmas[1:]):
        x = x + (following - now) * predict(model, x, now.expand(len(classes)), text[classes])
    return unpack(x)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path(__file__).parent / "digits-base")
    parser.add_argument("--preview", type=pathlib.Path, help="PNG of five samples of each class")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)

    latents, classes = make_digits.upright_digits()
    latents, classes = pack(torch.from_numpy(latents)), torch.from_numpy(classes)
    text = torch.from_numpy(np.stack([make_digits.text_embedding(digit) for digit in range(10)]))
    model = QwenImageTransformer2DModel(**CONFIG)
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {len(latents)} digits, seed {options.seed}")
    train(model, latents, text, classes, options)

    model.to(torch.bfloat16).save_pretrained(options.output)
    if options.preview:
        stored = QwenImageTransformer2DModel.from_pretrained(options.output, torch_dtype=torch.float32)
        drawn = sample(stored, text, torch.arange(10).repeat(5), options.seed).numpy()
        tiles = np.pad([np.asarray(make_digits.to_image(digit)) for digit in drawn], ((0, 0), (4, 4), (4, 4)))
        rows = [np.concatenate(tiles[row : row + 10], axis=1) for row in range(0, len(tiles), 10)]
        Image.fromarray(np.concatenate(rows)).save(options.preview)


if __name__ == "__main__":
    main()
