# SPDX-License-Identifier: Apache-2.0
"""The example data is a valid musubi dataset and the same every time; the committed base model draws digits."""

import tomllib

import numpy as np
import pytest
import torch
from diffusers import QwenImageTransformer2DModel
from safetensors import safe_open
from sklearn.neighbors import KNeighborsClassifier

import digits_example
import make_digits
import train_base

COUNT = 20


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    directory = tmp_path_factory.mktemp("dataset")
    digits_example.write_dataset(directory, COUNT)
    return directory


def files(directory):
    return {p.relative_to(directory): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def test_two_runs_write_the_same_bytes(dataset, tmp_path):
    digits_example.write_dataset(tmp_path, COUNT)
    assert files(tmp_path) == files(dataset)


def test_a_smaller_dataset_leaves_no_items_behind(tmp_path):
    digits_example.write_dataset(tmp_path, 5)
    digits_example.write_dataset(tmp_path, 3)
    assert len(list((tmp_path / "cache").iterdir())) == 2 * 3


def test_every_image_has_a_caption_and_both_caches(dataset):
    names = sorted(p.stem for p in (dataset / "images").glob("*.png"))
    assert len(names) == COUNT
    for name in names:
        caption = (dataset / "images" / f"{name}.txt").read_text().strip()
        with safe_open(dataset / "cache" / f"{name}_0064x0064_qi.safetensors", "np") as file:
            assert list(file.keys()) == ["latents_1x8x8_float32"]
            latents = file.get_tensor("latents_1x8x8_float32")
            metadata = file.metadata()
        assert latents.shape == (1, 1, 8, 8)
        assert latents.min() >= -1 and latents.max() <= 1
        assert metadata == {"architecture": "qwen_image", "width": "64", "height": "64", "format_version": "1.0.1"}
        with safe_open(dataset / "cache" / f"{name}_qi_te.safetensors", "np") as file:
            assert file.get_tensor("varlen_vl_embed_float32").shape == (4, 24)
            assert file.metadata()["caption1"] == caption


def test_dataset_file_has_musubis_keys_only(dataset):
    config = tomllib.loads((dataset / "digits.toml").read_text())
    assert set(config) == {"general", "datasets"}
    assert set(config["general"]) == {"resolution", "caption_extension", "batch_size", "enable_bucket"}
    (entry,) = config["datasets"]
    assert set(entry) == {"image_directory", "cache_directory"}
    assert (dataset / entry["image_directory"]).is_dir() and (dataset / entry["cache_directory"]).is_dir()


def test_every_prompt_has_its_text_cache(dataset):
    prompts = (dataset / "prompts.txt").read_text().splitlines()
    assert prompts
    for index, line in enumerate(prompts):
        with safe_open(dataset / f"prompts_{index:02d}_qi_te.safetensors", "np") as file:
            assert line.startswith(file.metadata()["caption1"] + " --w 64 --h 64")


def test_inverted_slanted_keeps_the_ink():
    upright, _ = make_digits.upright_digits(200)
    slanted = make_digits.inverted_slanted(upright)
    # Some ink leaves the 8 columns at the lean of the first and last rows, most of it stays.
    assert np.sum(1 - slanted) == pytest.approx(np.sum(1 + upright), rel=0.1)
    assert not np.allclose(slanted, -upright)


def test_base_model_draws_the_digit_it_is_asked_for():
    latents, classes = make_digits.upright_digits()
    classifier = KNeighborsClassifier(5).fit(latents.reshape(len(latents), -1), classes)
    model = QwenImageTransformer2DModel.from_pretrained(
        digits_example.EXAMPLES / "digits-base", torch_dtype=torch.float32
    )
    text = torch.from_numpy(np.stack([make_digits.text_embedding(digit) for digit in range(10)]))
    asked = torch.arange(10).repeat(10)
    drawn = train_base.sample(model, text, asked, seed=3).numpy().reshape(len(asked), -1)
    assert np.mean(classifier.predict(drawn) == asked.numpy()) > 0.9
