"""64-bit hash functions, also used for random numbers that depend only on a seed and a position.

In: uint64.  Out: uint64 (SplitMix64; Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).

    >>> import numpy as np
    >>> from exprkit.runtime.hashes import mixed, next_word
    >>> hex(mixed(np.uint64(1)))
    '0x5692161d100b05e5'
    >>> hex(next_word(np.zeros(1, np.uint64)))
    '0xe220a8397b1dcdaf'
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from exprkit.runtime.jit import inline

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@inline
def mixed(h) -> np.uint64:
    """Every bit of the result depends on all bits; of arrays as well."""
    h = (h ^ h >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ h >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return h ^ h >> np.uint64(31)


@inline
def next_word(state) -> np.uint64:
    """Advance the generator held in ``state[0]``."""
    state[0] += GOLDEN
    return mixed(state[0])
