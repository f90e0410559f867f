"""Rows of walks flow in; means with intervals flow out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from research.drift.families import BY_NAME
from research.drift.policies import ALONE, OURS
from research.drift.score import ANY, LABEL_FREE

Row = dict[str, Any]

FAIR_RIVAL = "ucci-router-reselected"
FLOOR, FLOOR_ADVERSARY = 0.85, 0.80


class Estimate(NamedTuple):
    """A mean over seeds and half its 95 % interval (Student's t; None with one seed)."""

    mean: float
    half: float | None

    def percent(self) -> str:
        """Return it as text in percent."""
        return f"{100 * self.mean:+.1f}" + ("" if self.half is None else f" ± {100 * self.half:.1f}")

    def share(self) -> str:
        """Return it as text with three digits."""
        return f"{self.mean:.3f}" + ("" if self.half is None else f" ± {self.half:.3f}")


def by_seed(rows: Iterable[Row], value: Callable[[Row], float | None]) -> Estimate | None:
    """Return the mean over families, seed by seed, and its interval over seeds; None where nothing was measured."""
    values: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        found = value(row)
        if found is not None:
            values[row["seed"]].append(found)
    if not values:
        return None
    means = np.array([np.mean(one) for one in values.values()])
    half = None
    if len(means) > 1:
        half = float(stats.t.ppf(0.975, len(means) - 1) * means.std(ddof=1) / np.sqrt(len(means)))
    return Estimate(float(means.mean()), half)


def of(rows: Iterable[Row], **wanted: str) -> list[Row]:
    """Return the rows with given values, such as ``policy="ours"``."""
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def is_messy(row: Row) -> bool:
    """Whether a row is of a family in which more goes wrong than drift."""
    return BY_NAME[row["family"]].mess is not None


def names(rows: Iterable[Row], key: str) -> list[str]:
    """Return the values of a column in order of appearance."""
    return list(dict.fromkeys(row[key] for row in rows))


def worst_family(rows: list[Row]) -> tuple[str, float]:
    """Return the family in which one policy complies least, and its compliance."""
    by_family = {
        family: float(np.mean([r["pol"] for r in of(rows, family=family)])) for family in names(rows, "family")
    }
    worst = min(by_family, key=lambda family: by_family[family])
    return worst, by_family[worst]


def below_floor(rows: list[Row]) -> dict[str, float]:
    """Return the families in which one policy complies less than asked: .85, or .80 where labels lie."""
    found = {}
    for family in names(rows, "family"):
        pol = float(np.mean([row["pol"] for row in of(rows, family=family)]))
        if pol < (FLOOR_ADVERSARY if BY_NAME[family].adversary else FLOOR):
            found[family] = pol
    return found


def false_alarms(rows: list[Row]) -> dict[str, tuple[int, float]]:
    """Return each detector's alarms while nothing had changed: their number, and how many in 100k queries."""
    found = {}
    for shown in _detectors(rows):
        walks, name = _watched(rows, shown)
        walks = [row for row in walks if row["quiet_queries"]]
        count = sum(row["false_alarms"].get(name, 0) for row in walks)
        found[shown] = count, 1e5 * count / max(sum(row["quiet_queries"] for row in walks), 1)
    return found


_ALONE = ", alone"


def _detectors(rows: list[Row]) -> list[str]:
    """Return the detectors that raised an alarm in walks of ours, then those that had walks of their own."""
    together = {name for row in of(rows, policy=OURS) for name in (*row["false_alarms"], *row["delays"])}
    alone = [f"{detector}{_ALONE}" for policy, detector in ALONE.items() if of(rows, policy=policy)]
    return [*sorted(together - {ANY, LABEL_FREE}), *alone]


def _watched(rows: list[Row], shown: str) -> tuple[list[Row], str]:
    """Return the walks in which a detector took part as it is shown, and its own name."""
    name = shown.removesuffix(_ALONE)
    if name == shown:
        return of(rows, policy=OURS), name
    return [row for policy, detector in ALONE.items() if detector == name for row in of(rows, policy=policy)], name


def median_delay(rows: list[Row], family: str, detector: str) -> tuple[float | None, int, int]:
    """Return the median delay over seeds and changes (None when mostly silent), how many were told, and of how many."""
    walks, name = _watched(rows, detector)
    listed = [delay for row in of(walks, family=family) for delay in _padded(row, name)]
    told = [delay for delay in listed if delay is not None]
    if not listed:
        return None, 0, 0
    middle = float(np.median([np.inf if delay is None else delay for delay in listed]))
    return (middle if np.isfinite(middle) else None), len(told), len(listed)


def _padded(row: Row, detector: str) -> list[int | None]:
    silent: list[int | None] = [None] * len(next(iter(row["delays"].values()), []))
    return list(row["delays"].get(detector, silent))
