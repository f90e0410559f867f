"""The registry of seeds: which ones methods are tuned on, and which ones are looked at once, in the end.

A benchmark that has a row here refuses seeds of its unseen half unless it is asked for them by ``--unseen``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Split(NamedTuple):
    """Seeds of one benchmark by half."""

    tuning: range
    unseen: range


REGISTRY = {
    "answers": Split(tuning=range(1, 101), unseen=range(1001, 1101)),
}


def check(benchmark: str, seeds: Iterable[int], *, unseen: bool = False) -> None:
    """Refuse seeds that do not belong to the half that is asked for.

    Raises
    ------
    ValueError
        If one does not.

    Examples
    --------
    >>> check("answers", [1, 2])
    >>> check("answers", [1001])
    Traceback (most recent call last):
        ...
    ValueError: seed 1001 is not for tuning: answers has 1 to 100 for that
    """
    half = REGISTRY[benchmark].unseen if unseen else REGISTRY[benchmark].tuning
    for seed in seeds:
        if seed not in half:
            purpose = "the last look" if unseen else "tuning"
            raise ValueError(f"seed {seed} is not for {purpose}: {benchmark} has {half[0]} to {half[-1]} for that")
