"""How a workload stood over time: micro-F1 against its target; escalation and cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby, pairwise
from typing import Any

from markupsafe import Markup

from recalibrator.api.pages.svg_canvas import (
    BAD,
    GOAL,
    MAIN,
    MUTED,
    SECOND,
    WIDE,
    drawn,
    nothing_yet,
    say_nothing_yet,
    time_axis,
)
from recalibrator.api.read_model.history import HistoryPoint

_DRIFT = frozenset({"suspected", "drifted"})
_ROOM = 0.012
_LEAST_POINTS = 2
_MOST_NUMBERED, _MOST_LINES = 8, 120


def quality_plot(points: Sequence[HistoryPoint], target: float) -> Markup:
    """Draw micro-F1 with its 95 % interval, the target, and where versions changed and drift was seen."""
    known = [(p.at, p.micro_f1) for p in points if p.micro_f1 is not None]
    description = (
        "Estimated micro-F1 over time with its 95 % interval. The dashed line is the target, "
        "vertical lines are new versions, shaded times are those of suspected drift."
    )
    if len(known) < _LEAST_POINTS:
        return nothing_yet(WIDE[0], description, "not enough labels yet")

    def draw(rows: Sequence[Any]) -> None:
        axes = rows[0]
        times = [at for at, _ in known]
        lower, upper = [f.lower for _, f in known], [f.upper for _, f in known]
        estimates = [f.estimate for _, f in known]
        axes.fill_between(times, lower, upper, color=MAIN, alpha=0.16, lw=0)
        axes.plot(times, estimates, color=MAIN, lw=1.8)
        # The widest intervals, those of the first labels, would flatten all the rest.
        middle = len(known) // 2
        axes.set_ylim(
            min([target, *estimates, sorted(lower)[middle]]) - _ROOM,
            max([target, *estimates, sorted(upper)[middle]]) + _ROOM,
        )
        _mark(axes, points, numbered=True)
        time_axis(axes, times[0], times[-1])
        axes.axhline(target, color=GOAL, lw=1.3, ls=(0, (4, 3)))
        axes.annotate(
            f"target {target:g}",
            (0.0, target),
            xycoords=("axes fraction", "data"),
            xytext=(3, -10),
            textcoords="offset points",
            color=GOAL,
            fontsize=8.5,
        )
        axes.set_ylabel("micro-F1")

    return drawn(WIDE, description, draw)


def escalation_plot(points: Sequence[HistoryPoint]) -> Markup:
    """Draw the share of queries escalated, and below it both costs against large-only."""
    rates = [(p.at, p.escalation_rate) for p in points if p.escalation_rate is not None]
    costs = [(p.at, p.cost) for p in points if p.cost is not None]
    description = (
        "Share of queries escalated to the large model over time, and the cost of a query in small calls: "
        "sequential, as the paper counts it, and of the large model alone."
    )
    if max(len(rates), len(costs)) < _LEAST_POINTS:
        return nothing_yet(WIDE[0], description, "no traffic yet")

    def draw(rows: Sequence[Any]) -> None:
        upper, lower = rows
        if len(rates) >= _LEAST_POINTS:
            upper.plot([at for at, _ in rates], [rate for _, rate in rates], color=SECOND, lw=1.8)
            upper.set_ylim(0.0, max(0.05, 1.15 * max(rate for _, rate in rates)))
            upper.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
            _mark(upper, points, numbered=False)
            time_axis(upper, rates[0][0], rates[-1][0])
            upper.set_ylabel("escalated")
        else:
            say_nothing_yet(upper, "no traffic yet")
        if len(costs) >= _LEAST_POINTS:
            times = [at for at, _ in costs]
            lower.plot(times, [c.sequential for _, c in costs], color=MAIN, lw=1.8, label="sequential")
            lower.plot(times, [c.paper for _, c in costs], color=MAIN, lw=1.3, ls=(0, (1, 1.2)), label="paper")
            lower.plot(times, [c.large_only for _, c in costs], color=GOAL, lw=1.3, ls=(0, (4, 3)), label="large only")
            lower.set_ylim(0.0, 1.42 * max(max(c.sequential, c.large_only) for _, c in costs))
            lower.legend(loc="upper left", ncols=3, borderaxespad=0.1, columnspacing=1.1)
            _mark(lower, points, numbered=False)
            time_axis(lower, times[0], times[-1])
            lower.set_ylabel("cost")
        else:
            say_nothing_yet(lower, "costs not known yet")

    return drawn(WIDE, description, draw, rows=2)


def _mark(axes: Any, points: Sequence[HistoryPoint], *, numbered: bool) -> None:
    """Mark new versions, the latest by number, and times of drift."""
    changed = [(b.at, b.version) for a, b in pairwise(points) if b.version is not None and b.version != a.version]
    for at, _ in _apart(changed, points, _MOST_LINES):
        axes.axvline(at, color=MUTED, lw=0.7, alpha=0.45)
    for at, version in _apart(changed, points, _MOST_NUMBERED) if numbered else ():
        axes.annotate(
            f"v{version}",
            (at, 0.0),
            xycoords=("data", "axes fraction"),
            xytext=(2, 3),
            textcoords="offset points",
            color=MUTED,
            fontsize=7.5,
        )
    for begin, end in _drift_spans(points):
        axes.axvspan(begin, end, color=BAD, alpha=0.09, lw=0)


def _apart(
    changed: Sequence[tuple[datetime, int | None]], points: Sequence[HistoryPoint], most: int
) -> Iterator[tuple[datetime, int | None]]:
    """Yield the latest changes that leave room for each other, so that at most so many fit on the axis."""
    room = (points[-1].at - points[0].at) / most
    last = None
    for at, version in reversed(changed):
        if last is None or last - at >= room:
            last = at
            yield at, version


def _drift_spans(points: Sequence[HistoryPoint]) -> Iterator[tuple[datetime, datetime]]:
    ends = [*(point.at for point in points[1:]), points[-1].at]
    for in_drift, run in groupby(zip(points, ends, strict=True), key=lambda pair: pair[0].drift in _DRIFT):
        inside = list(run)
        if in_drift:
            yield inside[0][0].at, inside[-1][1]
