"""Which streams to tune on: families and seeds flow in, a half drawn once by a coin for each flows out.

What falls to a family does not hang on which other families there are.
"""

from __future__ import annotations

import numpy as np

SEEDS = (811, 812, 813, 814)
_DRAWN = 20_261_125


def is_unseen(family: str, seed: int) -> bool:
    """Whether a stream is to be looked at once, in the end; of other seeds than ``SEEDS`` none is.

    Examples
    --------
    >>> is_unseen("quiet", 5)
    False
    """
    return seed in SEEDS and bool(np.random.default_rng([_DRAWN, seed, *family.encode()]).integers(2))


def half(family: str, *, unseen: bool) -> list[int]:
    """Return the seeds of a family that belong to one half."""
    return [seed for seed in SEEDS if is_unseen(family, seed) == unseen]
