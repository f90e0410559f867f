"""The registry of seeds: none is both chosen on and reported, and what is stored keeps to it."""

from __future__ import annotations

import json
from contextlib import nullcontext
from itertools import product
from typing import get_args

import pytest

from research.rivals.__main__ import BENCHMARKS, OUT
from research.seeds import REGISTRY, Purpose, check


@pytest.mark.parametrize("benchmark", REGISTRY)
def test_a_seed_of_another_purpose_is_refused(benchmark: str) -> None:
    for purpose, other in product(get_args(Purpose), repeat=2):
        seeds = getattr(REGISTRY[benchmark], other)
        refused = pytest.raises(ValueError, match=f"is not for {purpose}")
        with nullcontext() if other == purpose else refused:
            check(benchmark, seeds if other == purpose else seeds[:1], purpose)


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_rivals_are_reported_on_seeds_none_was_chosen_on(benchmark: str) -> None:
    stored = json.loads((OUT / f"{benchmark}.json").read_text(encoding="utf-8"))
    check(benchmark, {row["seed"] for row in stored["tuning"]}, "tuning")
    check(benchmark, {row["seed"] for row in stored["rows"]}, "reporting")
