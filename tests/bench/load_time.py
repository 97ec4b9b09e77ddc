#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares loading a checkpoint into host masters with reading the same file once.

    BLOCKSWAP_BIN_DIR=build/release/bin tests/bench/load_time.py FILE.safetensors [--repeats 5] [--pin] [--shared]

Alternates `cat FILE > /dev/null` and load_weights, each with a cold page cache (the file's pages are
dropped first) and with a warm one, and prints one JSON object: the medians in seconds and their
ratios. The cold ratio should be at most 1.3."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time


def drop_from_cache(path):
    with open(path, "rb") as file:
        os.fsync(file.fileno())  # dirty pages are not dropped
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cat_seconds(path):
    begin = time.perf_counter()
    with open(os.devnull, "wb") as null:
        subprocess.run(["cat", path], stdout=null, check=True)
    return time.perf_counter() - begin


def load(binary, path, flags):
    command = [binary, path, *flags]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--pin", action="store_true", help="page-lock the masters")
    parser.add_argument("--shared", action="store_true", help="into memory that jobs of a server share")
    arguments = parser.parse_args()
    binary = pathlib.Path(os.environ.get("BLOCKSWAP_BIN_DIR", "build/release/bin")) / "load_weights"
    if not binary.exists():
        sys.exit(f"{binary} is missing: build the target load_weights, or set BLOCKSWAP_BIN_DIR")

    flags = [f"--{flag}" for flag in ("pin", "shared") if getattr(arguments, flag)]
    times = {(what, cache): [] for what in ("cat", "load") for cache in ("cold", "warm")}
    loaded = {}
    for _ in range(arguments.repeats):
        for cache in ("cold", "warm"):
            if cache == "cold":
                drop_from_cache(arguments.file)
            times["cat", cache].append(cat_seconds(arguments.file))
            if cache == "cold":
                drop_from_cache(arguments.file)
            loaded = load(str(binary), arguments.file, flags)
            times["load", cache].append(loaded["seconds"])
    medians = {key: statistics.median(values) for key, values in times.items()}
    print(json.dumps({
        "file": arguments.file,
        "file_bytes": os.path.getsize(arguments.file),
        "repeats": arguments.repeats,
        **{f"{what}_seconds_{cache}": round(medians[what, cache], 4) for what, cache in medians},
        **{f"ratio_{cache}": round(medians["load", cache] / medians["cat", cache], 3)
           for cache in ("cold", "warm")},
        "peak_rss_over_masters_bytes": loaded["peak_rss_bytes"] - loaded["master_bytes"],
    }, indent=2))


if __name__ == "__main__":
    main()
