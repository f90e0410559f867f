"""Streams through the monitors: what was named first, when, and what was said where nothing moved."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.explanations.scenarios import QUIET, RECORDED, SYNTHETIC, Scenario
from benchmarks.explanations.stream import SETTINGS, START, Plan, events, routed
from benchmarks.explanations.texts import asked
from recalibrator.fit.data.label_table import LabelTable
from recalibrator.fit.movement.monitor import MovementMonitor
from recalibrator.fit.movement.series_table import RECENT_BLOCKS, Series, SeriesTable
from recalibrator.grid import Grid
from recalibrator.join.profile_counter import ProfileCounter
from schemas import LabelledExample
from schemas.movement import Movement
from schemas.traffic import GridSpec, TrafficSummary

SHIFT_AT, QUERIES = 5_000, 8_000
_EARLIEST = 3 * 250
_NO_LABELS = LabelTable(Grid(GridSpec()), 0.9, SETTINGS.fields, 10)
QUIET_SEED = 1_001
Progress = Callable[[str], None]
Build = Callable[[], MovementMonitor]
Stream = Sequence[tuple[int, TrafficSummary | LabelledExample]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one stream.

    Parameters
    ----------
    scenario : str
    seed : int
    early : int
        Explanations of before the shift, which are false.
    named : str
        The trait that stands first; empty where nothing was said.
    segment : str
        The value of ``source`` that is named with it.
    is_right : bool
        Cause, and segment where the scenario has one.
    delay : int or None
        Queries from the shift to the explanation.
    explained : float or None
        Share of the change in escalation.
    sentence : str
    """

    scenario: str
    seed: int
    early: int
    named: str = ""
    segment: str = ""
    is_right: bool = False
    delay: int | None = None
    explained: float | None = None
    sentence: str = ""


def run(seeds: Sequence[int], quiet_queries: int, told: Progress) -> dict[str, Any]:
    """Measure everything.

    Parameters
    ----------
    seeds : sequence of int
        Of the streams of each scenario.
    quiet_queries : int
        In each of the quiet streams: one as drawn, and one in bursts.
    told : callable
        Called with what has been done.
    """
    outcomes = list[Outcome]()
    for scenario in (*RECORDED, *SYNTHETIC):
        outcomes += [one_stream(scenario, Plan(QUERIES, SHIFT_AT, seed)) for seed in seeds]
        told(scenario.name)
    quiet = {}
    for title, in_bursts in (("as drawn", False), ("in bursts", True)):
        quiet[title] = quiet_stream(Plan(quiet_queries, quiet_queries, QUIET_SEED, in_bursts))
        told(f"quiet, {title}")
    return {"outcomes": [asdict(one) for one in outcomes], "quiet": quiet, "cost": _cost()}


def one_stream(scenario: Scenario, plan: Plan, build: Build = MovementMonitor, stream: Stream | None = None) -> Outcome:
    """Drive the monitors with one stream of a scenario, which may have been drawn before."""
    monitor, noticed = build(), None
    for number, event in stream or events(scenario, plan):
        _take(monitor, event)
        is_due = noticed is None and number >= plan.shift_at and not isinstance(event, LabelledExample)
        if is_due and _is_explained(monitor, plan.shift_at):
            noticed = number
    movements = monitor.status(_NO_LABELS).movements[::-1]
    late = [one for one in movements if (one.since - START).total_seconds() >= plan.shift_at - _EARLIEST]
    early = len(movements) - len(late)
    if not late:
        return Outcome(scenario.name, plan.seed, early=early)
    first = late[0].traits[0]
    return Outcome(
        scenario.name,
        plan.seed,
        early,
        named=first.trait,
        segment=first.value or "" if first.segment == "source" else "",
        is_right=_is_right(scenario, late[0]),
        delay=None if noticed is None else noticed + 1 - plan.shift_at,
        explained=first.escalation_explained,
        sentence=late[0].sentence,
    )


def _is_right(scenario: Scenario, found: Movement) -> bool:
    first = found.traits[0]
    named = first.trait == scenario.cause or (scenario.cause == "field:" and first.trait.startswith("field:"))
    return named and (scenario.source is None or (first.segment, first.value) == ("source", scenario.source))


def _take(monitor: MovementMonitor, event: Any) -> None:
    if isinstance(event, LabelledExample):
        monitor.on_label(event, counts=True)
    else:
        monitor.on_traffic(event)


def _is_explained(monitor: MovementMonitor, shift_at: int) -> bool:
    movements = monitor.status(_NO_LABELS).movements
    return bool(movements) and (movements[0].since - START).total_seconds() >= shift_at - _EARLIEST


def quiet_stream(plan: Plan, build: Build = MovementMonitor, stream: Stream | None = None) -> dict[str, Any]:
    """Drive the monitors with a stream in which nothing moves, and collect what they say."""
    monitor = build()
    seen: dict[str, str] = {}
    for number, event in stream or events(QUIET, plan):
        _take(monitor, event)
        if number % 1_000 == 0:
            seen |= {str(one.since): one.sentence for one in monitor.status(_NO_LABELS).movements}
    return {"queries": plan.queries, "explanations": len(seen), "sentences": list(seen.values())}


def _cost() -> dict[str, float]:
    """Return what the monitors cost: microseconds by summary, and kilobytes and a test's time for 200 series."""
    summaries = [event for _, event in events(QUIET, Plan(6_000, 6_000, 1)) if not isinstance(event, LabelledExample)]
    monitor = MovementMonitor()
    began_s = time.process_time()
    for summary in summaries:
        monitor.on_traffic(summary)
    spent_us = (time.process_time() - began_s) * 1e6
    status_s = time.process_time()
    for _ in range(20):
        monitor.status(_NO_LABELS)
    status_us = (time.process_time() - status_s) * 1e6 / 20
    table = full_table(200)
    queries = [routed(number, one, "web", 0.05) for number, one in enumerate(asked("clean", 3_000))]
    counter, counted_s = ProfileCounter(SETTINGS), time.process_time()
    for one in queries:
        counter.add(one)
    counted_us = (time.process_time() - counted_s) * 1e6 / len(queries)
    return {
        "join_us_by_query": counted_us,
        "series": float(len(monitor.table)),
        "us_by_summary": spent_us / len(summaries),
        "status_us": status_us,
        "summary_bytes": float(np.mean([len(one.to_json()) for one in summaries])),
        "of_them_profiles": float(np.mean([len(one.to_json()) - len(_bare(one).to_json()) for one in summaries])),
        "kilobytes_200_series": table.nbytes * 200.0 / 256.0 / 1e3,
        "snapshot_kilobytes": len(json.dumps(monitor.state())) / 1e3,
    }


def _bare(summary: Any) -> Any:
    return summary.model_copy(update={"profiles": (), "samples": (), "words": type(summary.words)()})


def full_table(series: int) -> SeriesTable:
    """Return the counts of so many series, all their blocks filled."""
    table = SeriesTable()
    for _ in range(RECENT_BLOCKS):
        for number in range(series):
            table.add(Series(f"trait {number}"), {"one": (250, 10)})
        table.close_block()
    return table
