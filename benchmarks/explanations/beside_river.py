"""The product's monitors and river's detectors on the same streams: what each names, how soon, and at what cost.

Streams are long enough for each: before a shift ADWIN has seen 8,000 inputs of each category, and KSWIN, whose window
is 100 inputs, 160.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks.explanations.experiment import (
    QUIET_SEED,
    Build,
    Outcome,
    Progress,
    full_table,
    one_stream,
    quiet_stream,
)
from benchmarks.explanations.river_monitors import RIVALS, Rival, RiverMonitor
from benchmarks.explanations.scenarios import QUIET, RECORDED, SYNTHETIC
from benchmarks.explanations.stream import Plan, events
from recalibrator.fit.movement.monitor import MovementMonitor
from schemas import LabelledExample

OURS = "the product"
SHIFT_AT, QUERIES = 10_000, 13_000
_FEW = frozenset({"a quarter with typos", "half with new names", "cameras missing on the web", "a new source"})
"""What a test sees that takes minutes for a stream."""

_QUIET, _SLOW_QUIET = 50_000, 10_000
"""Queries of a quiet stream at most; and for a test that takes minutes."""

_COST_QUERIES = 12_000
"""2,000 are learned from; in the last quarter KSWIN's windows are full, so that it tests at every input."""


@dataclass(slots=True)
class _Found:
    """What one test has made of the streams so far."""

    name: str
    build: Build
    is_slow: bool = False
    outcomes: list[Outcome] = field(default_factory=list)
    quiet: list[int] = field(default_factory=list)
    quiet_queries: int = 0

    def row(self) -> dict[str, Any]:
        delays = [one.delay for one in self.outcomes if one.delay is not None]
        return {
            "test": self.name,
            "right": sum(one.is_right for one in self.outcomes),
            "scenarios": len(self.outcomes),
            "early": sum(one.early for one in self.outcomes),
            "noticed": len(delays),
            "mean_delay": sum(delays) / len(delays) if delays else None,
            "quiet": self.quiet,
            "quiet_queries": self.quiet_queries,
        }


def beside_river(seed: int, quiet_queries: int, progress: Progress) -> list[dict[str, Any]]:
    """Return a row for the product and each rival.

    Parameters
    ----------
    seed : int
        Of the streams of the scenarios.
    quiet_queries : int
        Of each quiet stream, 50,000 at most; 10,000 for a test that takes minutes.
    progress : callable
        Called with what has been done.
    """
    quiet_queries = min(quiet_queries, _QUIET)
    ours = _Found(OURS, MovementMonitor)
    rivals = [_Found(one.name, partial(RiverMonitor, one), one.by_summary) for one in RIVALS]
    plan = Plan(QUERIES, SHIFT_AT, seed)
    for scenario in (*RECORDED, *SYNTHETIC):
        stream = list(events(scenario, plan))
        for one in (ours, *rivals):
            if not one.is_slow or scenario.name in _FEW:
                one.outcomes.append(one_stream(scenario, plan, one.build, stream))
        progress(f"beside river: {scenario.name}")
    for in_bursts in (False, True):
        stream = list(events(QUIET, Plan(quiet_queries, quiet_queries, QUIET_SEED, in_bursts)))
        for one in (ours, *rivals):
            one.quiet_queries = min(quiet_queries, _SLOW_QUIET) if one.is_slow else quiet_queries
            part = [(number, event) for number, event in stream if number < one.quiet_queries]
            found = quiet_stream(Plan(one.quiet_queries, one.quiet_queries, QUIET_SEED), one.build, part)
            one.quiet.append(found["explanations"])
            progress(f"beside river: quiet, {one.name}")
    return with_costs([one.row() for one in (ours, *rivals)])


def with_costs(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with what each test costs, measured now."""
    costs = [_our_cost(), *map(_river_cost, RIVALS)]
    return [one | cost for one, cost in zip(rows, costs, strict=True)]


def _summaries() -> list[Any]:
    plan = Plan(_COST_QUERIES, _COST_QUERIES, 3)
    return [one for _, one in events(QUIET, plan) if not isinstance(one, LabelledExample)]


def _driven(monitor: MovementMonitor, summaries: list[Any], between: Callable[[], None] | None = None) -> float:
    """Feed summaries, call ``between`` half way, and return the microseconds of CPU a summary of the last quarter."""
    half, late, spent_s = len(summaries) // 2, 3 * len(summaries) // 4, 0.0
    for number, summary in enumerate(summaries):
        if number == half and between is not None:
            between()
        began_s = time.process_time()
        monitor.on_traffic(summary)
        spent_s += (time.process_time() - began_s) * (number >= late)
    return spent_s * 1e6 / (len(summaries) - late)


def _our_cost() -> dict[str, Any]:
    summaries = _summaries()
    whole, first = MovementMonitor(), MovementMonitor()
    spent_us = _driven(whole, summaries)
    half = len(summaries) // 2
    _driven(first, summaries[:half])
    second = MovementMonitor()
    second.load(json.loads(json.dumps(first.state())))
    for summary in summaries[half:]:
        second.on_traffic(summary)
    return {
        "us_by_summary": spent_us,
        "kilobytes_200_series": full_table(200).nbytes * 200.0 / 256.0 / 1e3,
        "restart": json.dumps(second.state()) == json.dumps(whole.state()),
    }


def _river_cost(rival: Rival) -> dict[str, Any]:
    summaries = _summaries()
    whole, again = RiverMonitor(rival), RiverMonitor(rival)
    spent_us = _driven(whole, summaries)
    _driven(again, summaries, again.restart)
    return {
        "us_by_summary": spent_us,
        "kilobytes_200_series": whole.detector_bytes * whole.detectors / len(whole.table) * 200.0 / 1e3,
        "restart": again.fingerprint() == whole.fingerprint(),
    }
