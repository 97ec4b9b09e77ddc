# SPDX-License-Identifier: Apache-2.0
"""The worker's counter-based random numbers (worker/kernels/counter_random.h), written again for the references."""

import numpy as np

NOISE, TIMESTEP = 0, 1
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_INCREMENTS = (0x9E3779B9, 0xBB67AE85)
_WORD = 0xFFFFFFFF


def philox(counter, key):
    """Philox4x32-10 of one counter (four words) and key (two words)."""
    counter, key = list(counter), list(key)
    for _ in range(10):
        first, second = _MULTIPLIERS[0] * counter[0], _MULTIPLIERS[1] * counter[2]
        counter = [
            (second >> 32) ^ counter[1] ^ key[0],
            second & _WORD,
            (first >> 32) ^ counter[3] ^ key[1],
            first & _WORD,
        ]
        key = [(k + increment) & _WORD for k, increment in zip(key, _INCREMENTS)]
    return counter


def words(seed, step, sample, purpose, count):
    """The first `count` 32-bit words of the stream (seed, step, sample, purpose)."""
    key = (seed & _WORD, seed >> 32 & _WORD)
    tail = (sample, step & _WORD, (step >> 32) << 8 | purpose)
    blocks = [philox((block, *tail), key) for block in range((count + 3) // 4)]
    return np.array(blocks, dtype=np.uint64).reshape(-1)[:count]


def normals(seed, step, sample, purpose, count):
    """Standard normals by Box and Muller, two from each pair of words."""
    pairs = words(seed, step, sample, purpose, count + count % 2).astype(np.float64).reshape(-1, 2) * 2.0**-32
    radius = np.sqrt(-2.0 * np.log(pairs[:, 0] + 2.0**-32))
    angle = 2.0 * np.pi * pairs[:, 1]
    both = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return both.reshape(-1)[:count].astype(np.float32)
