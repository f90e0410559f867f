"""A labelled workload as columns: what both models answered to each query, and how sure the small one was.

The packed recordings flow in, arrays flow out. Rows are queries; counts are of (field, value) pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ucci_demo.recorded.traffic import RecordedQuery, load_traffic

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

FIELDS = ("camera", "lens", "aperture", "shutter_speed", "iso", "focal_length")
ROLES = ("small", "large")
FIELD_COUNTS = Path(__file__).parent / "fields.npz"
ADDRESS_COUNTS = Path(__file__).parent / "addresses.npz"
SPLIT = (0.30, 0.20, 0.50)
"""Shares of calibration, validation and test (paper, section 6.1)."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Pair counts of one model's answers.

    ``true_positives``, ``predicted``: ndarray of int, shape (queries, fields).
    """

    true_positives: Integers
    predicted: Integers

    def take(self, rows: Integers) -> Answers:
        """Return some rows."""
        return Answers(self.true_positives[rows], self.predicted[rows])


@dataclass(frozen=True, slots=True)
class Workload:
    """Queries with gold entities, both answers and the small model's signals.

    ``gold``: ndarray of int, shape (queries, fields). ``error``: ndarray of bool, shape (queries,); e(x): the small
    answer is not right in all fields (paper, section 4.2). ``signals``: dict of str to ndarray, shape (queries,);
    larger is less certain. ``margin`` is u of equation 4, in [0, 1]. ``target``: micro-F1 to reach. ``fields``: names
    of the columns of counts.
    """

    name: str
    small: Answers
    large: Answers
    gold: Integers
    error: Mask
    signals: dict[str, Floats]
    target: float
    fields: tuple[str, ...] = FIELDS

    def __len__(self) -> int:
        return len(self.gold)

    def take(self, rows: Integers) -> Workload:
        """Return some queries."""
        return Workload(
            self.name,
            self.small.take(rows),
            self.large.take(rows),
            self.gold[rows],
            self.error[rows],
            {name: values[rows] for name, values in self.signals.items()},
            self.target,
            self.fields,
        )

    def split(self, seed: int) -> tuple[Workload, Workload, Workload]:
        """Return calibration, validation and test: disjoint, drawn at random."""
        order = np.random.default_rng(seed).permutation(len(self))
        first, second = round(SPLIT[0] * len(self)), round((SPLIT[0] + SPLIT[1]) * len(self))
        return self.take(order[:first]), self.take(order[first:second]), self.take(order[second:])

    def pairs(self, role: str) -> tuple[Floats, Floats]:
        """Return numerator and denominator of micro-F1, a query each: 2 TP, and predicted plus gold pairs."""
        answers = self.small if role == "small" else self.large
        numerator = 2.0 * answers.true_positives.sum(axis=1)
        return numerator, (answers.predicted.sum(axis=1) + self.gold.sum(axis=1)).astype(np.float64)


def recorded_workload(target: float, queries: int | None = None) -> Workload:
    """Return the clean recorded queries, in the order in which they were recorded.

    An answer that is not valid has no u; its signals are set above all others, so that every threshold escalates it.

    ``queries``: only the first so many.
    """
    clean = [(row, query) for row, query in enumerate(load_traffic()) if query.shift == "none"][:queries]
    rows = np.array([row for row, _ in clean])
    with np.load(FIELD_COUNTS) as packed:
        counts = {name: packed[name].astype(np.int64)[rows] for name in packed.files}
    return Workload(
        "recorded",
        *(Answers(counts[f"{role}_true_positives"], counts[f"{role}_predicted"]) for role in ROLES),
        gold=counts["gold"],
        error=np.array([not query.small.exact for _, query in clean]),
        signals=_signals([query for _, query in clean]),
        target=target,
    )


def addresses_workload(target: float) -> Workload:
    """Return the public labelled addresses with the answers of two small taggers."""
    with np.load(ADDRESS_COUNTS) as packed:
        columns = {name: packed[name] for name in packed.files}
    gold = columns["gold"].astype(np.int64)
    small, large = (
        Answers(*(columns[f"{role}_{part}"].astype(np.int64) for part in ("true_positives", "predicted")))
        for role in ROLES
    )
    right = (small.true_positives == gold) & (small.predicted == gold)
    return Workload(
        "addresses",
        small,
        large,
        gold=gold,
        error=~right.all(axis=1),
        signals={
            name.removeprefix("signal_"): values for name, values in columns.items() if name.startswith("signal_")
        },
        target=target,
        fields=tuple(columns["fields"].tolist()),
    )


def _signals(queries: list[RecordedQuery]) -> dict[str, Floats]:
    failed = np.array([query.small.uncertainty is None for query in queries])
    answers = [query.small for query in queries]
    columns = {
        "margin": [1.0 if one.uncertainty is None else one.uncertainty for one in answers],
        "entropy": [one.entropy for one in answers],
        "max_probability": [1.0 - one.max_probability for one in answers],
        "minimum_margin": [1.0 - one.min_margin for one in answers],
        "likelihood": [one.negative_log_likelihood for one in answers],
    }
    signals = {name: np.array(values) for name, values in columns.items()}
    for values in signals.values():
        values[failed] = max(1.0, float(values.max()))
    return signals
