"""What happened over time: quality, escalation and cost, throughput, latency; all over the same stretch of time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby, pairwise
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.ticker import NullFormatter
from numpy.typing import NDArray

from recalibrator.api.pages.svg_canvas import (
    BAD,
    GOAL,
    MAIN,
    MUTED,
    SECOND,
    WIDE,
    drawn,
    goal,
    nothing_yet,
    say_nothing_yet,
    time_axis,
)
from recalibrator.api.pages.time_range import Window
from recalibrator.api.read_model.history import HistoryPoint, Served
from recalibrator.api.read_model.latency_history import LatencyPoint

_DRIFT = frozenset({"suspected", "drifted"})
_QUALITY_ROOM = 0.012
_LEAST_POINTS = 2
_MOST_NUMBERED, _MOST_LINES = 8, 120
_BINS = 60
"""Of throughput, over the whole stretch of time."""

_DAY_S = 86_400.0
_DASHED, _DOTTED = (0, (4, 3)), (0, (1, 1.2))


def quality_plot(points: Sequence[HistoryPoint], target: float | None, window: Window) -> Markup:
    """Draw micro-F1 with its 95 % interval, the target, and where versions changed and drift was seen."""
    seen = window.of(points)
    known = [(p.at, p.micro_f1) for p in seen if p.micro_f1 is not None]
    description = "Estimated micro-F1 over time with its 95 % interval."
    if len(known) < _LEAST_POINTS:
        ever = [p for p in points if p.micro_f1 is not None]
        return nothing_yet(WIDE[0], description, _missing(ever, "not enough labels yet"))
    estimates = [interval.estimate for _, interval in known]
    latest = known[-1][1]
    description = (
        f"{description} {latest.estimate:.3f} ({latest.lower:.3f} to {latest.upper:.3f}) at the end, "
        f"{_between(estimates, '.3f')}{_dashed(target)}. {_changes(seen, window)}"
    )

    def draw(rows: Sequence[Any]) -> None:
        axes = rows[0]
        times = [at for at, _ in known]
        lower, upper = [f.lower for _, f in known], [f.upper for _, f in known]
        axes.fill_between(times, lower, upper, color=MAIN, alpha=0.16, lw=0)
        axes.plot(times, estimates, color=MAIN, lw=1.8)
        # The widest intervals, those of the first labels, would flatten all the rest.
        middle = len(known) // 2
        axes.set_ylim(
            min([*goal(target), *estimates, sorted(lower)[middle]]) - _QUALITY_ROOM,
            max([*goal(target), *estimates, sorted(upper)[middle]]) + _QUALITY_ROOM,
        )
        _mark(axes, seen, window, numbered=True)
        time_axis(axes, *window)
        _mark_goal(axes, target)
        axes.set_ylabel("micro-F1")

    return drawn(WIDE, description, draw)


def _dashed(target: float | None) -> str:
    return "" if target is None else f"; the dashed line is the target, {target:g}"


def _mark_goal(axes: Any, target: float | None) -> None:
    if target is None:
        return
    axes.axhline(target, color=GOAL, lw=1.3, ls=_DASHED)
    axes.annotate(
        f"target {target:g}",
        (0.0, target),
        xycoords=("axes fraction", "data"),
        xytext=(3, -10),
        textcoords="offset points",
        color=GOAL,
        fontsize=8.5,
    )


def escalation_plot(points: Sequence[HistoryPoint], window: Window) -> Markup:
    """Draw the share of queries escalated, and below it both costs against the large model alone."""
    seen = window.of(points)
    rates = [(p.at, p.escalation_rate) for p in seen if p.escalation_rate is not None]
    costs = [(p.at, p.cost) for p in seen if p.cost is not None]
    description = (
        "Share of queries escalated to the large model over time, and the cost of a query in small calls: "
        "sequential, as the paper counts it, and of the large model alone."
    )
    if max(len(rates), len(costs)) < _LEAST_POINTS:
        return nothing_yet(WIDE[0], description, _missing(points, "no traffic yet"))
    if rates:
        shares = [rate for _, rate in rates]
        description += f" Escalated: {shares[-1]:.1%} at the end, {_between(shares, '.1%')}."
    if costs:
        cost = costs[-1][1]
        description += (
            f" Cost at the end: {cost.sequential:.3g} against {cost.large_only:.3g} of the large model alone."
        )

    def draw(rows: Sequence[Any]) -> None:
        upper, lower = rows
        if len(rates) >= _LEAST_POINTS:
            upper.plot([at for at, _ in rates], [rate for _, rate in rates], color=SECOND, lw=1.8)
            upper.set_ylim(0.0, max(0.05, 1.15 * max(rate for _, rate in rates)))
            upper.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
            _mark(upper, seen, window, numbered=False)
            time_axis(upper, *window)
            upper.set_ylabel("escalated")
        else:
            say_nothing_yet(upper, "no traffic yet")
        if len(costs) >= _LEAST_POINTS:
            times = [at for at, _ in costs]
            lower.plot(times, [c.sequential for _, c in costs], color=MAIN, lw=1.8, label="sequential")
            lower.plot(times, [c.paper for _, c in costs], color=MAIN, lw=1.3, ls=_DOTTED, label="paper")
            lower.plot(times, [c.large_only for _, c in costs], color=GOAL, lw=1.3, ls=_DASHED, label="large alone")
            lower.set_ylim(0.0, 1.42 * max(max(c.sequential, c.large_only) for _, c in costs))
            lower.legend(loc="upper left", ncols=3, borderaxespad=0.1, columnspacing=1.1)
            _mark(lower, seen, window, numbered=False)
            time_axis(lower, *window)
            lower.set_ylabel("cost")
        else:
            say_nothing_yet(lower, "costs not known yet")

    return drawn(WIDE, description, draw, rows=2)


def throughput_plot(points: Sequence[HistoryPoint], window: Window) -> Markup:
    """Draw queries a second by whose answer was served, stacked."""
    description = "Queries answered a second over time, by the model whose answer was served."
    known = [(p.at, p.served) for p in points if p.served is not None]
    if len(known) < _LEAST_POINTS or known[-1][0] <= window.begin:
        return nothing_yet(WIDE[0], description, _missing(known, "no traffic yet"))
    edges, rates = throughput(known, window)
    total = np.sum(list(rates.values()), axis=0)
    description = (
        f"{description} {total[-1]:.2g} a second at the end, {total.max():.2g} at most: "
        f"{_shares({name: float(np.sum(rate * np.diff(edges))) for name, rate in rates.items()})}."
    )

    def draw(rows: Sequence[Any]) -> None:
        axes = rows[0]
        axes.xaxis_date()
        below = np.zeros(len(total))
        # On its axes of time the library counts days, of Unix time.
        days = edges / _DAY_S
        for name, color, hatch in (("small", MAIN, None), ("large", SECOND, None), ("degraded", BAD, "//")):
            if name == "degraded" and not rates[name].any():
                continue
            above = below + rates[name]
            axes.stairs(above, days, baseline=below, fill=True, color=color, alpha=0.55, label=name, hatch=hatch, lw=0)
            below = above
        axes.set_ylim(0.0, 1.3 * max(float(total.max()), 1e-9))
        axes.legend(loc="upper left", ncols=3, borderaxespad=0.1, columnspacing=1.1)
        time_axis(axes, *window)
        axes.set_ylabel("queries a second")

    return drawn(WIDE, description, draw)


def throughput(
    known: Sequence[tuple[datetime, Served]], window: Window
) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
    """Return queries a second in equal parts of the window, by ``small``, ``large`` and ``degraded``.

    Between two statuses the queries are taken to be spread evenly. A count that falls, as when a fit has lost its
    state, begins anew there.

    Parameters
    ----------
    known : sequence of (datetime, Served)
        Oldest first, at least two.

    Returns
    -------
    edges : ndarray, shape (parts + 1,)
        In Unix seconds.
    rates : dict of str to ndarray, shape (parts,)
    """
    times = np.array([at.timestamp() for at, _ in known])
    edges = np.linspace(window.begin.timestamp(), window.end.timestamp(), _BINS + 1)
    names = ("small", "large", "degraded")
    return edges, {
        name: np.diff(np.interp(edges, times, _growing([getattr(served, name) for _, served in known])))
        / np.diff(edges)
        for name in names
    }


def _growing(counts: Sequence[float]) -> NDArray[np.float64]:
    """Return sums that never fall: what was counted since the first, over restarts from nothing."""
    values = np.array(counts, dtype=np.float64)
    steps = np.diff(values)
    return np.concatenate([[0.0], np.cumsum(np.where(steps < 0.0, values[1:], steps))])


def latency_plot(
    latencies: Mapping[str, Sequence[LatencyPoint]], points: Sequence[HistoryPoint], window: Window
) -> Markup:
    """Draw median, 99th percentile and mean of the latency of each model's calls."""
    description = "Latency of model calls over time, in seconds on a logarithmic scale."
    known = [(p.at, p.served) for p in points if p.served is not None]
    seen = {role: window.of(series) for role, series in latencies.items()}
    means = {role: _mean_latency(known, role, window) for role in latencies}
    if not any(seen.values()) and not any(times for times, _ in means.values()):
        return nothing_yet(WIDE[0], description, _missing(known, "no call yet"))
    description += "".join(
        f" {role.capitalize()}: median {series[-1].median_s:.3g} s and 99th percentile {series[-1].p99_s:.3g} s at the "
        f"end, {max(point.p99_s for point in series):.3g} s at most."
        for role, series in seen.items()
        if series
    )

    def draw(rows: Sequence[Any]) -> None:
        for axes, (role, series) in zip(rows, seen.items(), strict=True):
            if series or means[role][0]:
                _draw_latency(axes, series, *means[role])
                time_axis(axes, *window)
                axes.set_ylabel(role)
            else:
                say_nothing_yet(axes, f"no call of the {role} model")
        first = next(axes for axes in rows if axes.lines)
        # Above the lines: on a logarithmic scale they may lie anywhere.
        first.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, borderaxespad=0.1, columnspacing=1.1)

    return drawn(WIDE, description, draw, rows=len(seen))


def _draw_latency(
    axes: Any, series: Sequence[LatencyPoint], times: Sequence[datetime], mean_s: Sequence[float]
) -> None:
    if series:
        at = [point.at for point in series]
        axes.plot(at, [p.p99_s for p in series], color=SECOND, lw=1.4, ls=_DASHED, label="99th percentile")
        axes.plot(at, [p.median_s for p in series], color=MAIN, lw=1.8, label="median")
    if times:
        axes.plot(times, mean_s, color=MUTED, lw=1.2, ls=_DOTTED, label="mean")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g} s")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.margins(y=0.25)


def _mean_latency(
    known: Sequence[tuple[datetime, Served]], role: str, window: Window
) -> tuple[list[datetime], list[float]]:
    """Return the mean latency of a model's calls in each part of the window that has any; times are their ends."""
    if len(known) < _LEAST_POINTS:
        return [], []
    times = np.array([at.timestamp() for at, _ in known])
    edges = np.linspace(window.begin.timestamp(), window.end.timestamp(), _BINS + 1)
    calls, seconds = (
        np.diff(np.interp(edges, times, _growing([getattr(served, name) for _, served in known])))
        for name in (f"{role}_calls", f"{role}_latency_s")
    )
    has_calls = (calls > 0.0) & (seconds > 0.0)
    ends = [datetime.fromtimestamp(edge, window.end.tzinfo) for edge in edges[1:][has_calls]]
    return ends, (seconds[has_calls] / calls[has_calls]).tolist()


def _missing(known: Sequence[object], what: str) -> str:
    """Return why nothing is drawn: nothing is known at all, or nothing came in within the window."""
    return what if len(known) < _LEAST_POINTS else "nothing came in during this time"


def _between(values: Sequence[float], form: str) -> str:
    return f"between {min(values):{form}} and {max(values):{form}}"


def _shares(queries: Mapping[str, float]) -> str:
    whole = sum(queries.values())
    return ", ".join(f"{name} {count / whole if whole else 0.0:.0%}" for name, count in queries.items())


def _changes(points: Sequence[HistoryPoint], window: Window) -> str:
    """Return the new versions and the times of drift within a window, in words."""
    count = sum(1 for _ in _new_versions(points))
    drift = [f"{max(begin, window.begin):%d %b %H:%M} to {end:%d %b %H:%M} UTC" for begin, end in _drift_spans(points)]
    said = f"Vertical lines are new versions, {count} of them"
    return f"{said}; shaded times are those of suspected drift: {', '.join(drift)}." if drift else f"{said}."


def _mark(axes: Any, points: Sequence[HistoryPoint], window: Window, *, numbered: bool) -> None:
    """Mark new versions, the latest by number, and times of drift."""
    changed = list(_new_versions(points))
    for at, _ in _spaced(changed, window, _MOST_LINES):
        axes.axvline(at, color=MUTED, lw=0.7, alpha=0.45)
    for at, version in _spaced(changed, window, _MOST_NUMBERED) if numbered else ():
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
        axes.axvspan(max(begin, window.begin), end, color=BAD, alpha=0.09, lw=0)


def _new_versions(points: Sequence[HistoryPoint]) -> Iterator[tuple[datetime, int]]:
    return ((b.at, b.version) for a, b in pairwise(points) if b.version is not None and b.version != a.version)


def _spaced(changed: Sequence[tuple[datetime, int]], window: Window, most: int) -> Iterator[tuple[datetime, int]]:
    """Yield the latest changes that leave room for each other, so that at most so many fit on the axis."""
    room = (window.end - window.begin) / most
    last = None
    for at, version in reversed(changed):
        if last is None or last - at >= room:
            last = at
            yield at, version


def _drift_spans(points: Sequence[HistoryPoint]) -> Iterator[tuple[datetime, datetime]]:
    ends = [*(point.at for point in points[1:]), *(point.at for point in points[-1:])]
    for in_drift, run in groupby(zip(points, ends, strict=True), key=lambda pair: pair[0].drift in _DRIFT):
        inside = list(run)
        if in_drift:
            yield inside[0][0].at, inside[-1][1]
