"""The scores: what was routed and the oracle flow in, the numbers of METHOD flow out.

Compliance (``pol``) is judged on expected micro-F1, since a perfect policy meets the target in little more than half of
realised blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from research.drift.oracle import LARGE_COST, Oracle, expected_micro_f1
from research.drift.simulate import Alarm, Routed
from research.drift.streams import BLOCK, Stream

Floats = NDArray[np.float64]

TOLERANCE = 0.005
"""Of micro-F1, below the target (or the best that can be reached) before a block counts as missed."""
_BINS = 10
LABEL_FREE = "any label-free"
ANY = "any"


@dataclass(frozen=True)
class Score:
    """One policy on one stream.

    ``pol``: share of blocks of 2,000 queries with expected micro-F1 of at least the target less .005. ``regret``: mean
    sequential cost over the oracle's, less 1; exploration included. ``regret_kept``: the same without what exploration
    costs. ``excess``: mean over blocks of expected micro-F1 less what the oracle holds. ``realised_excess``: the same
    by the answers that were drawn, over the whole stream. ``worst_run``: longest run of missed blocks.
    ``calibration_error``: mean over blocks of the error of g(u) in force against P(error | u), in 10 bins of equal
    mass. ``cost``, ``cost_paper``: mean cost of a query in small calls, exploration included; the paper's leaves out
    the small call wherever the large model ran. ``false_alarms``: alarms before anything changed, by detector.
    ``quiet_queries``: queries before anything changed. ``delays``: for each detector the queries from each change to
    its first alarm; None where it stayed silent.
    """

    pol: float
    regret: float
    regret_kept: float
    excess: float
    realised_excess: float
    worst_run: int
    calibration_error: float | None
    versions: int
    escalation_rate: float
    cost: float
    cost_paper: float
    false_alarms: dict[str, int] = field(default_factory=dict)
    quiet_queries: int = 0
    delays: dict[str, list[int | None]] = field(default_factory=dict)


def score(stream: Stream, routed: Routed, best: Oracle) -> Score:
    """Score one walk."""
    held = expected_micro_f1(stream, routed.served_by_large) - best.reach
    met = held >= -TOLERANCE
    oracle_cost = float(best.cost.mean())
    hits = np.where(routed.served_by_large, stream.truth.large, stream.truth.small).sum()
    quiet, false_alarms = before_change(stream, routed.alarms)
    cost = mean_cost(routed.large_ran)
    return Score(
        pol=float(met.mean()),
        regret=cost / oracle_cost - 1.0,
        regret_kept=mean_cost(routed.escalated) / oracle_cost - 1.0,
        excess=float(held.mean()),
        realised_excess=float(hits / stream.truth.gold.sum() - best.reach.mean()),
        worst_run=longest_run(~met),
        calibration_error=calibration_error(routed.routed_error, stream.expected[3]),
        versions=len(np.unique(routed.version)),
        escalation_rate=float(routed.escalated.mean()),
        cost=cost,
        cost_paper=cost - float(routed.large_ran.mean()),
        false_alarms=false_alarms,
        quiet_queries=quiet,
        delays=delays(stream, routed.alarms),
    )


def mean_cost(large_paid: NDArray[np.bool_]) -> float:
    """Return the mean sequential cost of a query in small calls, of large calls those given, shape (queries,)."""
    return float(1.0 + LARGE_COST * large_paid.mean())


def longest_run(missed: NDArray[np.bool_]) -> int:
    """Return the length of the longest run of True.

    Examples
    --------
    >>> longest_run(np.array([True, False, True, True]))
    2
    """
    padded = np.concatenate(([0], missed.astype(np.int64), [0]))
    turns = np.flatnonzero(np.diff(padded))
    return int((turns[1::2] - turns[::2]).max(initial=0))


def calibration_error(forecast: Floats, chance: Floats, block: int = BLOCK) -> float | None:
    """Return the expected calibration error against known chances, so that no label noise is in it.

    ``forecast``: ndarray, shape (queries,); g(u) as routed; NaN where there was none. ``chance``: ndarray, shape
    (queries,); p(error | u). ``block``: bins are made within blocks of so many queries: errors of opposite sign at
    different times do not cancel.
    """
    if np.isnan(forecast).any():
        return None
    order = np.argsort(forecast.reshape(-1, block), axis=1, kind="stable")
    gap = np.take_along_axis((forecast - chance).reshape(-1, block), order, axis=1)
    return float(np.abs(gap.reshape(len(gap), _BINS, -1).mean(axis=2)).mean())


def before_change(stream: Stream, alarms: list[Alarm]) -> tuple[int, dict[str, int]]:
    """Return the number of queries before anything changed, and each detector's alarms among them."""
    changes = stream.family.changes
    quiet = round(changes[0] * len(stream)) if changes else len(stream)
    counted: dict[str, int] = {}
    for alarm in alarms:
        if alarm.number <= quiet:
            counted[alarm.detector] = counted.get(alarm.detector, 0) + 1
    return quiet, counted


def delays(stream: Stream, alarms: list[Alarm]) -> dict[str, list[int | None]]:
    """Return each detector's queries from each change to its first alarm before the next change.

    ``any label-free`` and ``any`` are the first of those detectors. Changes from the first query on are left out.
    """
    changes = [round(change * len(stream)) for change in stream.family.changes if change > 0.0]
    found: dict[str, list[int | None]] = {}
    for name in (LABEL_FREE, ANY, *sorted({alarm.detector for alarm in alarms})):
        told = [
            alarm.number
            for alarm in alarms
            if name in (alarm.detector, ANY) or (name == LABEL_FREE and not alarm.needs_labels)
        ]
        spans = zip(changes, [*changes, len(stream)][1:], strict=True)
        found[name] = [min((n - begin for n in told if begin < n <= end), default=None) for begin, end in spans]
    return found
