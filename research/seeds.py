"""The registry of seeds, and its one rule: what is chosen is chosen on tuning seeds, what is reported on others.

``tuning``: constants, margins and rivals' knobs are chosen on these. ``reporting``: tables that others read are made on
these, and nothing is chosen on them. ``unseen``: looked at once, in the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

Purpose = Literal["tuning", "reporting", "unseen"]


class Split(NamedTuple):
    """Seeds of one benchmark by purpose."""

    tuning: range
    reporting: range
    unseen: range


REGISTRY = {
    "answers": Split(tuning=range(1, 41), reporting=range(41, 101), unseen=range(1001, 1101)),
    "quiet weeks": Split(tuning=range(101, 201), reporting=range(1, 101), unseen=range(1001, 1101)),
    "drift": Split(tuning=range(1, 901), reporting=range(901, 1001), unseen=range(1001, 1101)),
}


def check(benchmark: str, seeds: Iterable[int], purpose: Purpose) -> None:
    """Refuse seeds that are not for a purpose.

    Raises ValueError if one is not.

    Examples
    --------
    >>> check("answers", [1, 2], "tuning")
    >>> check("answers", [1001], "tuning")
    Traceback (most recent call last):
        ...
    ValueError: seed 1001 is not for tuning: answers has 1 to 40 for that
    """
    known = getattr(REGISTRY[benchmark], purpose)
    for seed in seeds:
        if seed not in known:
            raise ValueError(f"seed {seed} is not for {purpose}: {benchmark} has {known[0]} to {known[-1]} for that")
