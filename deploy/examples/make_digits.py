#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the handwritten digits of scikit-learn as a musubi-tuner image dataset with its caches.

The 1,797 digits are real 8x8 scans. Each becomes one "latent" of 1 channel and 8x8 cells in [-1, 1], as if a VAE had
encoded a 64x64 image, and each class has a fixed text embedding of 4 tokens, so that a small Qwen-Image model can be
trained and sampled without a VAE or a text encoder. The output depends on nothing but the options.

Below --output:
  digits.toml                              the dataset file: one image dataset, 64x64
  images/digit_0000.png, .txt              the image a latent stands for, and its caption
  cache/digit_0000_0064x0064_qi.safetensors   latents_1x8x8_float32 [1, 1, 8, 8] (channels, frames, height, width)
  cache/digit_0000_qi_te.safetensors          varlen_vl_embed_float32 [4, 24]
  prompts.txt                              sample prompts, one a line, with musubi's options
  prompts_00_qi_te.safetensors ..          the text cache of prompt line 0, 1, ..: <stem>_<index:02d>_qi_te.safetensors
"""

import argparse
import json
import pathlib
import shutil

import numpy as np
from PIL import Image
from safetensors.numpy import save
from sklearn.datasets import load_digits

ARCHITECTURE = "qwen_image"
FORMAT_VERSION = "1.0.1"
PIXELS_PER_CELL = 8
TEXT_TOKENS = 4
TEXT_WIDTH = 24
SHEAR_CELLS_PER_ROW = 0.3
SAMPLED_DIGITS = (0, 1, 4, 6)

DATASET_TOML = """\
[general]
resolution = [64, 64]
caption_extension = ".txt"
batch_size = {batch_size}
enable_bucket = false

[[datasets]]
image_directory = "images"
cache_directory = "cache"
"""


def upright_digits(count=None):
    """Returns the latents [N, 8, 8] in [-1, 1] (strokes are bright) and the classes [N]."""
    digits = load_digits()
    latents = (digits.images / 8.0 - 1.0).astype(np.float32)
    classes = digits.target.astype(np.int64)
    return latents[:count], classes[:count]


def inverted_slanted(latents_NHW):
    """Negates the digits (dark strokes on bright ground) and leans them to the right."""
    count, height, width = latents_NHW.shape
    columns = np.arange(width, dtype=np.float64)
    slanted = np.empty_like(latents_NHW)
    for row in range(height):
        source = columns - SHEAR_CELLS_PER_ROW * ((height - 1) / 2 - row)
        for index in range(count):
            slanted[index, row] = np.interp(source, columns, latents_NHW[index, row], left=-1.0, right=-1.0)
    return -slanted


STYLES = {"upright": lambda latents: latents, "inverted-slanted": inverted_slanted}


def text_embedding(digit):
    """Returns the fixed [4, 24] embedding of a class; the generator's stream is frozen by numpy's policy."""
    return np.random.RandomState(1000 + digit).standard_normal((TEXT_TOKENS, TEXT_WIDTH)).astype(np.float32)


def caption(digit):
    return f"a handwritten {digit}"


def write_safetensors(path, tensors, metadata):
    """Writes one file with its header keys in sorted order: the package's own order differs from run to run."""
    raw = save(tensors)
    header_bytes = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + header_bytes])
    header = json.dumps({"__metadata__": dict(sorted(metadata.items())), **header}, separators=(",", ":"))
    header += " " * (-len(header) % 8)
    path.write_bytes(len(header).to_bytes(8, "little") + header.encode() + raw[8 + header_bytes :])


def write_latents(path, latents_HW):
    height, width = latents_HW.shape
    write_safetensors(
        path,
        {f"latents_1x{height}x{width}_float32": np.ascontiguousarray(latents_HW[None, None])},
        {
            "architecture": ARCHITECTURE,
            "width": str(width * PIXELS_PER_CELL),
            "height": str(height * PIXELS_PER_CELL),
            "format_version": FORMAT_VERSION,
        },
    )


def write_text(path, digit):
    write_safetensors(
        path,
        {"varlen_vl_embed_float32": text_embedding(digit)},
        {"architecture": ARCHITECTURE, "caption1": caption(digit), "format_version": FORMAT_VERSION},
    )


def to_image(latents_HW):
    """Renders a latent as the 64x64 grey image it stands for."""
    grey = np.clip((latents_HW + 1.0) * 127.5, 0, 255).round().astype(np.uint8)
    size = (latents_HW.shape[1] * PIXELS_PER_CELL, latents_HW.shape[0] * PIXELS_PER_CELL)
    return Image.fromarray(grey, mode="L").resize(size, Image.NEAREST)


def write_dataset(output, style, count, batch_size):
    latents, classes = upright_digits(count)
    latents = STYLES[style](latents)
    images, cache = output / "images", output / "cache"
    for directory in (images, cache):
        if directory.exists():
            shutil.rmtree(directory)  # items of an earlier, larger --count would otherwise stay
        directory.mkdir(parents=True)
    for index, (latent, digit) in enumerate(zip(latents, classes)):
        name = f"digit_{index:04d}"
        image = to_image(latent)
        image.save(images / f"{name}.png")
        (images / f"{name}.txt").write_text(caption(digit) + "\n")
        write_latents(cache / f"{name}_{image.width:04d}x{image.height:04d}_qi.safetensors", latent)
        write_text(cache / f"{name}_qi_te.safetensors", digit)
    (output / "digits.toml").write_text(DATASET_TOML.format(batch_size=batch_size))
    return len(latents)


def write_prompts(output, steps):
    lines = []
    for index, digit in enumerate(SAMPLED_DIGITS):
        lines.append(f"{caption(digit)} --w 64 --h 64 --s {steps} --d {42 + index} --fs 2.2")
        write_text(output / f"prompts_{index:02d}_qi_te.safetensors", digit)
    (output / "prompts.txt").write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, required=True, help="directory to write (made when missing)")
    parser.add_argument("--style", choices=sorted(STYLES), default="inverted-slanted")
    parser.add_argument("--count", type=int, default=512, help="first COUNT digits; 0 means all 1,797")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--sample-steps", type=int, default=20)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    written = write_dataset(options.output, options.style, options.count or None, options.batch_size)
    write_prompts(options.output, options.sample_steps)
    print(f"wrote {written} {options.style} digits and {len(SAMPLED_DIGITS)} prompts to {options.output}")


if __name__ == "__main__":
    main()
