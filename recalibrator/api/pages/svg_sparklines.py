"""The last hours of a workload in a line each; longer stretches and other measures are Grafana's.

Where nothing was reported a line has a gap: a line across an outage would say that all went on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from html import escape
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from markupsafe import Markup

from recalibrator.api.pages.html_environment import number, percent, rate
from recalibrator.api.read_model.history import HistoryPoint
from schemas.status import HappeningEvent

#: Of each line, at most; a service that began later is shown from its beginning.
SPAN = timedelta(hours=6)

_BINS = 96
_WIDTH, _HEIGHT, _ROOM = 240.0, 48.0, 4.0
_LEAST_POINTS = 2
_DRIFT = frozenset({"suspected", "drifted"})
#: Reports are kept every 30 s up to this age and every 150 s beyond (:mod:`recalibrator.api.read_model.history`): twice
#: as long without one is a gap.
_OFTEN_S = (3_600.0, 60.0, 300.0)

#: Where reports come seldom, so many times as long as usual is a gap.
_SELDOM = 4.0

_Values = Sequence[tuple[float, float]]


class Sparkline(NamedTuple):
    """One line: what it shows, its latest value and the range in words, and the drawing, empty while there is none."""

    name: str
    latest: str
    between: str
    drawing: Markup


class Frame(NamedTuple):
    """What all lines share: from when to when in Unix seconds, the gaps, and what is drawn under and over each."""

    begin: float
    end: float
    gaps: Sequence[tuple[float, float]]
    drift: Sequence[tuple[float, float]]
    marks: Sequence[tuple[float, bool, str]]

    def x(self, at: float) -> float:
        """Return where a time lies across the drawing."""
        return _WIDTH * min(max((at - self.begin) / (self.end - self.begin), 0.0), 1.0)

    def is_gap(self, begin: float, end: float) -> bool:
        """Return whether nothing was reported for most of the time between two moments."""
        silent = sum(max(0.0, min(end, b) - max(begin, a)) for a, b in self.gaps)
        return silent > 0.5 * (end - begin)


def sparklines(
    points: Sequence[HistoryPoint],
    target: float | None,
    now: datetime,
    happened: Iterable[HappeningEvent] = (),
    moved: Mapping[datetime, str] | None = None,
) -> tuple[Sparkline, ...]:
    """Return the lines of micro-F1, with its target and times of drift, of escalation, cost and throughput.

    ``points``: oldest first. ``happened``: marked on every line. ``moved``: when versions moved the threshold visibly,
    and what to say of each.
    """
    seen = [point for point in points if now - SPAN <= point.at <= now]
    if len(seen) < _LEAST_POINTS or seen[0].at == seen[-1].at:
        return tuple(
            Sparkline(name, "–", "nothing to draw yet", Markup())
            for name in ("micro-F1", "escalated", "cost of a query", "queries a second")
        )
    begin, end = seen[0].at.timestamp(), now.timestamp()
    drift = [(a.at.timestamp(), b.at.timestamp()) for a, b in pairwise(seen) if a.drift in _DRIFT]
    marks = [(one.at.timestamp(), one.is_bad, one.sentence) for one in happened]
    marks += [(at.timestamp(), False, what) for at, what in (moved or {}).items()]
    marks = [mark for mark in marks if begin <= mark[0] <= end]
    frame = Frame(begin, end, _gaps(seen, end), (), marks)
    quality = [(p.at.timestamp(), p.micro_f1.estimate) for p in seen if p.micro_f1 is not None]
    escalated = [(p.at.timestamp(), p.escalation_rate) for p in seen if p.escalation_rate is not None]
    cost = [(p.at.timestamp(), p.cost.sequential) for p in seen if p.cost is not None]
    return (
        _sparkline("micro-F1", quality, [number(value) for _, value in quality], frame._replace(drift=drift), target),
        _sparkline("escalated", escalated, [percent(value) for _, value in escalated], frame),
        _sparkline("cost of a query", cost, [number(value, 2) for _, value in cost], frame),
        _sparkline("queries a second", busy := throughput(seen), [rate(value) for _, value in busy], frame),
    )


def throughput(points: Sequence[HistoryPoint]) -> list[tuple[float, float]]:
    """Return queries a second up to each report, by its time in Unix seconds; the first stands for its beginning too.

    Reports that lie close together count as one. A count that falls, as when a fit has lost its state, restarts there.
    """
    known = [(point.at.timestamp(), point.served.queries) for point in points if point.served is not None]
    if len(known) < _LEAST_POINTS or known[-1][0] <= known[0][0]:
        return []
    close, found = (known[-1][0] - known[0][0]) / _BINS, []
    at, grown = known[0][0], 0
    for (_, before), (later, queries) in pairwise(known):
        grown += queries if queries < before else queries - before
        if later - at >= close or later == known[-1][0]:
            found.append((later, grown / (later - at)))
            at, grown = later, 0
    return [(known[0][0], found[0][1]), *found]


def _gaps(points: Sequence[HistoryPoint], end: float) -> list[tuple[float, float]]:
    """Return the times, in Unix seconds, in which nothing was reported."""
    times = [point.at.timestamp() for point in points]
    usual = _SELDOM * median(b - a for a, b in pairwise(times))
    recent_s, often, seldom = _OFTEN_S
    return [(a, b) for a, b in pairwise(times) if b - a > max(usual, often if end - a <= recent_s else seldom)]


def _sparkline(name: str, values: _Values, texts: Sequence[str], frame: Frame, goal: float | None = None) -> Sparkline:
    if len(values) < _LEAST_POINTS or values[-1][0] <= values[0][0]:
        return Sparkline(name, texts[-1] if texts else "–", "nothing to draw yet", Markup())
    heights = [value for _, value in values]
    lowest, highest = (texts[heights.index(of(heights))] for of in (min, max))
    between = lowest if lowest == highest else f"{lowest} to {highest}"
    label = f"{name}: {texts[-1]}, {between}"
    if frame.gaps:
        label = f"{label}; nothing was reported for {sum(b - a for a, b in frame.gaps) / 60.0:.0f} minutes"
    return Sparkline(name, texts[-1], between, _drawn(label, values, frame, goal))


def _drawn(label: str, values: _Values, frame: Frame, goal: float | None) -> Markup:
    x, heights = frame.x, [*(value for _, value in values), *([] if goal is None else [goal])]
    low, reach = min(heights), max(heights) - min(heights)
    if not reach:
        low, reach = low - 0.5, 1.0  # a level line runs through the middle

    def y(value: float) -> float:
        return _HEIGHT - _ROOM - (_HEIGHT - 2.0 * _ROOM) * (value - low) / reach

    parts = [
        f'<rect class="{kind}" x="{x(a):.1f}" width="{x(b) - x(a):.1f}" height="{_HEIGHT:g}"/>'
        for kind, spans in (("silent", frame.gaps), ("drift", frame.drift))
        for a, b in spans
    ]
    if goal is not None:
        parts.append(f'<path class="goal" d="M0 {y(goal):.1f}H{_WIDTH:g}"/>')
    for at, is_bad, what in frame.marks:
        said = f"<title>{escape(what)}</title>"
        parts.append(f'<path class="mark{" fault" if is_bad else ""}" d="M{x(at):.1f} 0V{_HEIGHT:g}">{said}</path>')
    steps, before = [], None
    for at, value in _thinned(values, frame):
        draws_on = before is not None and not frame.is_gap(before, at)
        # A round dot where a report stands alone.
        steps.append(f"{'L' if draws_on else 'M'}{x(at):.1f} {y(value):.1f}{'' if draws_on else 'h.01'}")
        before = at
    box = f'viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" preserveAspectRatio="none"'
    drawing = f'<svg class="spark" role="img" aria-label="{escape(label)}" {box}>{"".join(parts)}'
    return Markup(f'{drawing}<path class="line" d="{"".join(steps)}"/></svg>')  # noqa: S704 numbers, and escaped


def _thinned(values: _Values, frame: Frame) -> list[tuple[float, float]]:
    """Return the last value of each of :data:`_BINS` equal parts of the time: more would lie on each other."""
    by_place = {int(_BINS * frame.x(at) / _WIDTH): (at, value) for at, value in values}
    return [values[0], *(value for value in by_place.values() if value != values[0])]
