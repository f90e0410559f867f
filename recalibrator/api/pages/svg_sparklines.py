"""The last hours of a workload in a line each; longer stretches and other measures are Grafana's."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from html import escape
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from recalibrator.api.pages.html_environment import number, percent, rate
from recalibrator.api.read_model.history import HistoryPoint

SPAN = timedelta(hours=6)
"""Of each line, at most; a service that began later is shown from its beginning."""

_BINS = 60
"""Of throughput."""

_WIDTH, _HEIGHT, _ROOM = 240.0, 48.0, 4.0
_LEAST_POINTS = 2
_DRIFT = frozenset({"suspected", "drifted"})


class Sparkline(NamedTuple):
    """One line: what it shows, its latest value and the range in words, and the drawing, empty while there is none."""

    name: str
    latest: str
    between: str
    drawing: Markup


def sparklines(points: Sequence[HistoryPoint], target: float | None, now: datetime) -> tuple[Sparkline, ...]:
    """Return the lines of micro-F1, with its target and times of drift, of escalation, cost and throughput.

    Parameters
    ----------
    points : sequence of HistoryPoint
        Oldest first.
    """
    seen = [point for point in points if now - SPAN <= point.at <= now]
    quality = [(p.at.timestamp(), p.micro_f1.estimate) for p in seen if p.micro_f1 is not None]
    escalated = [(p.at.timestamp(), p.escalation_rate) for p in seen if p.escalation_rate is not None]
    cost = [(p.at.timestamp(), p.cost.sequential) for p in seen if p.cost is not None]
    return (
        _sparkline("micro-F1", quality, [number(value) for _, value in quality], target, _drift_spans(seen)),
        _sparkline("escalated", escalated, [percent(value) for _, value in escalated]),
        _sparkline("cost of a query", cost, [number(value, 2) for _, value in cost]),
        _sparkline("queries a second", busy := throughput(seen), [rate(value) for _, value in busy]),
    )


def throughput(points: Sequence[HistoryPoint]) -> list[tuple[float, float]]:
    """Return queries a second in equal parts of the time, each with its end in Unix seconds.

    Between two statuses the queries are taken to be spread evenly. A count that falls, as when a fit has lost its
    state, restarts there.
    """
    known = [(point.at.timestamp(), point.served.queries) for point in points if point.served is not None]
    if len(known) < _LEAST_POINTS or known[-1][0] <= known[0][0]:
        return []
    times, counts = np.array(known, dtype=np.float64).T
    steps = np.diff(counts)
    grown = np.concatenate([[0.0], np.cumsum(np.where(steps < 0.0, counts[1:], steps))])
    edges = np.linspace(times[0], times[-1], _BINS + 1)
    rates = np.diff(np.interp(edges, times, grown)) / np.diff(edges)
    return list(zip(edges[1:].tolist(), rates.tolist(), strict=True))


def _sparkline(
    name: str,
    values: Sequence[tuple[float, float]],
    texts: Sequence[str],
    goal: float | None = None,
    shaded: Sequence[tuple[float, float]] = (),
) -> Sparkline:
    if len(values) < _LEAST_POINTS or values[-1][0] <= values[0][0]:
        return Sparkline(name, texts[-1] if texts else "–", "nothing to draw yet", Markup())
    heights = [value for _, value in values]
    lowest, highest = (texts[heights.index(of(heights))] for of in (min, max))
    between = lowest if lowest == highest else f"{lowest} to {highest}"
    return Sparkline(name, texts[-1], between, _drawn(f"{name}: {texts[-1]}, {between}", values, goal, shaded))


def _drawn(
    label: str, values: Sequence[tuple[float, float]], goal: float | None, shaded: Sequence[tuple[float, float]]
) -> Markup:
    (begin, _), (end, _) = values[0], values[-1]
    heights = [*(value for _, value in values), *([] if goal is None else [goal])]
    low, reach = min(heights), max(heights) - min(heights)
    if not reach:
        low, reach = low - 0.5, 1.0  # a level line runs through the middle

    def x(at: float) -> float:
        return _WIDTH * min(max((at - begin) / (end - begin), 0.0), 1.0)

    def y(value: float) -> float:
        return _HEIGHT - _ROOM - (_HEIGHT - 2.0 * _ROOM) * (value - low) / reach

    parts = [f'<rect class="drift" x="{x(a):.1f}" width="{x(b) - x(a):.1f}" height="{_HEIGHT:g}"/>' for a, b in shaded]
    if goal is not None:
        parts.append(f'<path class="goal" d="M0 {y(goal):.1f}H{_WIDTH:g}"/>')
    line = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in values)
    box = f'viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" preserveAspectRatio="none"'
    drawing = f'<svg class="spark" role="img" aria-label="{escape(label)}" {box}>{"".join(parts)}'
    return Markup(f'{drawing}<polyline points="{line}"/></svg>')  # noqa: S704 numbers and names of this file


def _drift_spans(points: Sequence[HistoryPoint]) -> list[tuple[float, float]]:
    return [(a.at.timestamp(), b.at.timestamp()) for a, b in pairwise(points) if a.drift in _DRIFT]
