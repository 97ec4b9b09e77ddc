#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One LoRA training step of blockswap-worker beside the same step of diffusers + peft, on the CPU.

Both train rank-16 adapters (fp32) on the 14 linears of every Qwen-Image block with gradient checkpointing and AdamW, on
the same random weights, token counts and thread count. Every run is a process of its own, the two sides alternate, and
the peak resident memory of both is what the kernel reports when the process ends. Exit status 1: a target was missed.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ADAPTED_LINEARS = [
    "attn.to_q", "attn.to_k", "attn.to_v", "attn.to_out.0", "attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj",
    "attn.to_add_out", "img_mlp.net.0.proj", "img_mlp.net.2", "txt_mlp.net.0.proj", "txt_mlp.net.2", "img_mod.1", "txt_mod.1",
]  # fmt: skip
RANK = 16
WARMUP_STEPS = 2
# Ours divided by the peer's.
RSS_TARGET = 0.65


@dataclasses.dataclass(frozen=True)
class Model:
    layers: int
    heads: int
    head_dim: int
    axes: tuple
    text_width: int
    grid: int  # image tokens are grid x grid
    text_tokens: int
    dtype: str
    time_target: float

    def config(self):
        return dict(
            patch_size=2, in_channels=64, out_channels=16, num_layers=self.layers, attention_head_dim=self.head_dim,
            num_attention_heads=self.heads, joint_attention_dim=self.text_width, axes_dims_rope=self.axes,
        )  # fmt: skip


MODELS = {
    "12x512-bf16": Model(12, 8, 64, (16, 24, 24), 512, 16, 32, "bf16", time_target=0.75),
    "60x128-fp32": Model(60, 4, 32, (8, 12, 12), 128, 8, 16, "fp32", time_target=0.40),
}


def write_weights(model, directory):
    """Runs in a child process: random weights in diffusers' layout."""
    import torch
    from diffusers import QwenImageTransformer2DModel

    torch.manual_seed(1)
    network = QwenImageTransformer2DModel(**model.config())
    network.to(torch.bfloat16 if model.dtype == "bf16" else torch.float32).save_pretrained(directory)


def peer_steps(model, directory, steps, threads):
    """Runs in a child process: prints the seconds of each step as one JSON line."""
    import time

    import torch
    from diffusers import QwenImageTransformer2DModel
    from peft import LoraConfig

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    dtype = torch.bfloat16 if model.dtype == "bf16" else torch.float32
    network = QwenImageTransformer2DModel.from_pretrained(directory, torch_dtype=dtype)
    network.requires_grad_(False)
    network.add_adapter(LoraConfig(r=RANK, lora_alpha=RANK, target_modules=ADAPTED_LINEARS))
    network.enable_gradient_checkpointing()
    network.train()
    adapters = [p for p in network.parameters() if p.requires_grad]
    assert len(adapters) == 2 * len(ADAPTED_LINEARS) * model.layers
    for parameter in adapters:
        parameter.data = parameter.data.float()
    optimizer = torch.optim.AdamW(adapters, lr=1e-4)
    tokens = model.grid * model.grid
    latents = torch.randn(1, tokens, 64)
    text = torch.randn(1, model.text_tokens, model.text_width).to(dtype)
    seconds = []
    for _ in range(steps):
        started = time.perf_counter()
        noise, t = torch.randn_like(latents), torch.rand(1)
        noisy = torch.lerp(latents, noise, t[:, None, None])
        prediction = network(
            hidden_states=noisy.to(dtype), encoder_hidden_states=text, timestep=t.to(dtype),
            img_shapes=[[(1, model.grid, model.grid)]], return_dict=False,
        )[0]  # fmt: skip
        loss = torch.nn.functional.mse_loss(prediction.float(), noise - latents)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        seconds.append(time.perf_counter() - started)
    print(json.dumps({"step_seconds": seconds}))


def run_measured(command):
    """Returns (the JSON object on the last line of output, peak RSS in bytes) of a command."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit(f"failed with status {process.returncode}: {' '.join(map(str, command))}")
        output.seek(0)
        return json.loads(output.read().strip().splitlines()[-1]), usage.ru_maxrss * 1024


def child(name, action, directory, options):
    return [
        sys.executable, __file__, "--child", action, "--models", name, "--work-dir", str(directory),
        "--steps", str(options.steps), "--threads", str(options.threads),
    ]  # fmt: skip


def worker_command(model, directory, options):
    return [
        str(options.worker), "bench-step", "--config", str(directory / "config.json"), "--weights", str(directory),
        "--tokens-h", str(model.grid), "--tokens-w", str(model.grid), "--text", str(model.text_tokens), "--rank", str(RANK),
        "--dtype", model.dtype, "--steps", str(options.steps), "--threads", str(options.threads), *options.worker_flag,
    ]  # fmt: skip


def compare(name, directory, options):
    """Runs both sides in turn; returns the result line of a model."""
    model = MODELS[name]
    if not (directory / "config.json").exists():
        subprocess.run(child(name, "write", directory, options), check=True)
    sides = {
        "blockswap": worker_command(model, directory, options),
        "diffusers_peft": child(name, "peer", directory, options),
    }
    seconds, rss = {side: [] for side in sides}, {side: [] for side in sides}
    for repeat in range(options.repeats):
        order = list(sides) if repeat % 2 == 0 else list(reversed(sides))
        for side in order:
            report, peak = run_measured(sides[side])
            seconds[side].append(statistics.median(report["step_seconds"][WARMUP_STEPS:]))
            rss[side].append(peak)
    ours, theirs = (statistics.median(seconds[side]) for side in ("blockswap", "diffusers_peft"))
    our_rss, their_rss = (statistics.median(rss[side]) for side in ("blockswap", "diffusers_peft"))
    return {
        "model": name,
        "step_seconds": {"blockswap": ours, "diffusers_peft": theirs},
        "step_seconds_of_runs": seconds,
        "time_ratio": ours / theirs,
        "time_target": model.time_target,
        "peak_rss_mib": {"blockswap": our_rss / 2**20, "diffusers_peft": their_rss / 2**20},
        "rss_ratio": our_rss / their_rss,
        "rss_target": RSS_TARGET,
        "met": ours / theirs <= model.time_target and our_rss / their_rss <= RSS_TARGET,
    }


def print_result(result):
    step, rss = result["step_seconds"], result["peak_rss_mib"]
    print(
        f"{result['model']}: step {step['blockswap']:.3f} s against {step['diffusers_peft']:.3f} s, "
        f"ratio {result['time_ratio']:.3f} (target {result['time_target']}); "
        f"peak RSS {rss['blockswap']:.0f} MiB against {rss['diffusers_peft']:.0f} MiB, "
        f"ratio {result['rss_ratio']:.3f} (target {result['rss_target']})"
    )
    spread = {side: f"{min(s):.3f}-{max(s):.3f}" for side, s in result["step_seconds_of_runs"].items()}
    print(f"  medians of runs: blockswap {spread['blockswap']} s, diffusers_peft {spread['diffusers_peft']} s", flush=True)


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    binaries = pathlib.Path(os.environ.get("BLOCKSWAP_BIN_DIR", root / "build" / "release" / "bin"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=sorted(MODELS), default=sorted(MODELS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6, help=f"steps of a run; the first {WARMUP_STEPS} are not counted")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--worker", type=pathlib.Path, default=binaries / "blockswap-worker")
    parser.add_argument("--worker-flag", action="append", default=[], help="passed to bench-step, repeatable")
    parser.add_argument("--work-dir", type=pathlib.Path, help="keeps the random weights; default: a temporary directory")
    parser.add_argument("--json", type=pathlib.Path, help="also writes the results to this file")
    parser.add_argument("--child", choices=("write", "peer"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.steps <= WARMUP_STEPS:
        parser.error(f"--steps must be more than the {WARMUP_STEPS} warm-up steps")
    if options.child == "write":
        return write_weights(MODELS[options.models[0]], options.work_dir)
    if options.child == "peer":
        return peer_steps(MODELS[options.models[0]], options.work_dir, options.steps, options.threads)
    if not options.worker.exists():
        sys.exit(f"{options.worker} does not exist: build it, or set BLOCKSWAP_BIN_DIR")
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work_dir or pathlib.Path(temporary)
        results = []
        for name in options.models:
            results.append(compare(name, work / name, options))
            print_result(results[-1])
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0 if all(result["met"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
