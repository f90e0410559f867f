"""The five plots of a workload: reliability, histogram of u, cost against quality, quality and escalation over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby, pairwise
from math import log
from typing import Any

from markupsafe import Markup

from recalibrator.api.pages.svg_canvas import (
    BAD,
    GOAL,
    MAIN,
    MUTED,
    SECOND,
    SQUARE,
    WIDE,
    drawn,
    nothing_yet,
    say_nothing_yet,
    time_axis,
)
from recalibrator.api.read_model.history import HistoryPoint
from schemas.status import CostQualityCurve, ReliabilityBin, UncertaintyHistogram

_TICKS = ((1e-5, "10⁻⁵"), (1e-4, "10⁻⁴"), (1e-3, ".001"), (0.01, ".01"), (0.1, ".1"), (0.5, ".5"), (0.9, ".9"))
_LEAST_SHARE = 0.001
_RELIABILITY_ROOM = 1.12


def reliability_plot(bins: Sequence[ReliabilityBin]) -> Markup:
    """Draw predicted against observed error; the area of a dot, and the number at it, are its labels."""
    description = (
        "Reliability: predicted against observed error with the number of labels in each bin; "
        "on the dashed line both are equal."
    )
    if not bins:
        return nothing_yet(SQUARE[0], description, "not enough labels yet")

    def draw(rows: Sequence[Any]) -> None:
        axes = rows[0]
        most = min(1.0, _RELIABILITY_ROOM * max([0.1, *(b.predicted for b in bins), *(b.observed for b in bins)]))
        axes.plot([0, most], [0, most], color=GOAL, lw=1.2, ls=(0, (4, 3)))
        axes.plot([b.predicted for b in bins], [b.observed for b in bins], color=MAIN, lw=1.0, alpha=0.5)
        largest = max(b.count for b in bins) or 1
        sizes = [10.0 + 70.0 * b.count / largest for b in bins]
        axes.scatter([b.predicted for b in bins], [b.observed for b in bins], s=sizes, color=MAIN, lw=0, zorder=3)
        for one in _numbered_bins(bins, most):
            axes.annotate(
                str(one.count),
                (one.predicted, one.observed),
                xytext=(0, 7),
                textcoords="offset points",
                ha="center",
                color=MUTED,
                fontsize=7.5,
            )
        axes.set_xlim(0, most)
        axes.set_ylim(0, most)
        axes.set_xlabel("predicted error")
        axes.set_ylabel("observed error")

    return drawn(SQUARE, description, draw)


def _numbered_bins(bins: Sequence[ReliabilityBin], most: float) -> list[ReliabilityBin]:
    """Return the bins whose numbers do not lie on each other."""
    shown: list[ReliabilityBin] = []
    for one in reversed(bins):
        near = (
            abs(one.predicted - other.predicted) < 0.1 * most and abs(one.observed - other.observed) < 0.1 * most
            for other in shown
        )
        if not any(near):
            shown.append(one)
    return shown


def uncertainty_plot(
    now: UncertaintyHistogram | None, at_fit: UncertaintyHistogram | None, threshold: float | None
) -> Markup:
    """Draw the shares of queries by u, now and when the version in force was fitted, and the threshold."""
    description = "Shares of queries by uncertainty u: now, and when the version in force was fitted."
    if now is None or not now.share:
        return nothing_yet(SQUARE[0], description, "no traffic yet")

    def draw(rows: Sequence[Any]) -> None:
        axes = rows[0]
        edges = _logits(now.edges)
        axes.stairs(now.share, edges, fill=True, color=MAIN, alpha=0.4, label="now")
        if at_fit is not None and at_fit.share:
            axes.stairs(at_fit.share, _logits(at_fit.edges), color=SECOND, lw=1.5, label="at fit")
        most = max([*now.share, *(at_fit.share if at_fit is not None else ())])
        if threshold is not None and 0.0 < threshold < 1.0:
            axes.axvline(_logit(threshold), color=GOAL, lw=1.3, ls=(0, (4, 3)))
            axes.annotate(
                "escalates",
                (_logit(threshold), 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(3, -9),
                textcoords="offset points",
                color=GOAL,
                fontsize=8.5,
            )
        filled = [k for k, share in enumerate(now.share) if share > _LEAST_SHARE]
        low, high = edges[filled[0]], edges[filled[-1] + 1]
        axes.set_xlim(low, high)
        axes.set_ylim(0, 1.3 * most)
        ticks = [(u, text) for u, text in _TICKS if low <= _logit(u) <= high]
        axes.set_xticks([_logit(u) for u, _ in ticks], [text for _, text in ticks])
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes.set_xlabel("u, logit scale")
        axes.set_ylabel("queries")
        axes.legend(loc="upper left", borderaxespad=0.1)

    return drawn(SQUARE, description, draw)


def _logits(edges: Sequence[float]) -> list[float]:
    """Return edges on the logit scale; the outermost, 0 and 1, are drawn one bin's width beyond the next."""
    inner = [_logit(edge) for edge in edges[1:-1]]
    width = inner[1] - inner[0]
    return [inner[0] - width, *inner, inner[-1] + width]


def _logit(u: float) -> float:
    return log(u / (1.0 - u))


_CURVE_ROOM = 0.01


def frontier_plot(
    now: CostQualityCurve | None, at_fit: CostQualityCurve | None, target: float | None, large_only: float | None
) -> Markup:
    """Draw micro-F1 against sequential cost, or escalation while the costs are unknown."""
    description = (
        "Expected micro-F1 of every threshold against its cost; the dot is the threshold in force, "
        "the dashed line the target."
    )
    if now is None or len(now.micro_f1) < _LEAST_POINTS:
        return nothing_yet(SQUARE[0], description, "not enough labels yet")

    def draw(rows: Sequence[Any]) -> None:
        axes = rows[0]
        has_cost = bool(now.sequential_cost)
        if at_fit is not None and len(_across(at_fit, has_cost=has_cost)) == len(at_fit.micro_f1):
            axes.plot(_across(at_fit, has_cost=has_cost), at_fit.micro_f1, color=SECOND, lw=1.1, label="at fit")
        axes.plot(_across(now, has_cost=has_cost), now.micro_f1, color=MAIN, lw=1.8, label="now")
        if target is not None:
            axes.axhline(target, color=GOAL, lw=1.2, ls=(0, (4, 3)))
        if now.chosen is not None:
            place = _across(now, has_cost=has_cost)[now.chosen], now.micro_f1[now.chosen]
            axes.scatter(*place, s=44, color=MAIN, zorder=4, lw=0)
            axes.annotate("in force", place, xytext=(-6, 5), textcoords="offset points", ha="right", fontsize=8.5)
        if has_cost and large_only is not None:
            axes.axvline(large_only, color=MUTED, lw=0.9, ls=":")
            axes.annotate(
                "large only",
                (large_only, 0.0),
                xycoords=("data", "axes fraction"),
                xytext=(-3, 4),
                textcoords="offset points",
                ha="right",
                color=MUTED,
                fontsize=7.5,
            )
        values = [*now.micro_f1, *_goal(target)]
        axes.set_ylim(min(values) - _CURVE_ROOM, max(values) + _CURVE_ROOM)
        axes.set_xlabel("cost of a query, sequential" if has_cost else "share escalated")
        axes.set_ylabel("expected micro-F1")
        if not has_cost:
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes.legend(loc="lower right", borderaxespad=0.3) if at_fit is not None and at_fit.micro_f1 else None

    return drawn(SQUARE, description, draw)


def _across(frontier: CostQualityCurve, *, has_cost: bool) -> tuple[float, ...]:
    return frontier.sequential_cost if has_cost else frontier.escalation_rate


_DRIFT = frozenset({"suspected", "drifted"})
_QUALITY_ROOM = 0.012
_LEAST_POINTS = 2
_MOST_NUMBERED, _MOST_LINES = 8, 120


def _goal(target: float | None) -> tuple[float, ...]:
    return () if target is None else (target,)


def _mark_goal(axes: Any, target: float | None) -> None:
    if target is None:
        return
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


def quality_plot(points: Sequence[HistoryPoint], target: float | None) -> Markup:
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
            min([*_goal(target), *estimates, sorted(lower)[middle]]) - _QUALITY_ROOM,
            max([*_goal(target), *estimates, sorted(upper)[middle]]) + _QUALITY_ROOM,
        )
        _mark(axes, points, numbered=True)
        time_axis(axes, times[0], times[-1])
        _mark_goal(axes, target)
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
    for at, _ in _spaced(changed, points, _MOST_LINES):
        axes.axvline(at, color=MUTED, lw=0.7, alpha=0.45)
    for at, version in _spaced(changed, points, _MOST_NUMBERED) if numbered else ():
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


def _spaced(
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
