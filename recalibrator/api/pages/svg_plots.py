"""The drawings of the page: what holds now beside what held at the fit, and the last hours in a line each.

Reliability, the histogram of u, cost against quality and against labels are planes. Longer stretches of time and other
measures are Grafana's. Where nothing was reported a line has a gap: a line across an outage would say that all went on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from html import escape
from itertools import pairwise
from math import ceil, floor, log, log10
from statistics import median
from typing import NamedTuple

from markupsafe import Markup
from pydantic import ValidationError

from recalibrator.api.pages.html_environment import number, percent, rate
from recalibrator.api.read_model.history import HistoryPoint
from recalibrator.api.read_model.topic_cache import TopicCache
from schemas.calibration import CalibrationVersion
from schemas.status import (
    ALARMED,
    CostQualityCurve,
    HappeningEvent,
    LabelOutlook,
    LabelPlan,
    ReliabilityBin,
    UncertaintyHistogram,
    WorkloadStatus,
)

_WIDTH, _HEIGHT = 300.0, 210.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 44.0, 282.0, 22.0, 172.0
_TICKS_OF_U = ((1e-5, "10⁻⁵"), (1e-4, "10⁻⁴"), (1e-3, ".001"), (0.01, ".01"), (0.1, ".1"), (0.5, ".5"), (0.9, ".9"))
_LEAST_SHARE = 0.001
_LEAST_POINTS = 2
_MOST_TICKS = 5.0
#: Below and above a curve of costs.
_ROOM = 0.05

_Points = Sequence[tuple[float, float]]
_Ticks = Sequence[tuple[float, str]]


class _Chart(NamedTuple):
    """A plane from ``(left, bottom)`` to ``(right, top)`` in the units of what is shown."""

    left: float
    right: float
    bottom: float
    top: float

    def x(self, value: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * (value - self.left) / (self.right - self.left or 1.0)

    def y(self, value: float) -> float:
        return _BOTTOM + (_TOP - _BOTTOM) * (value - self.bottom) / (self.top - self.bottom or 1.0)

    def line(self, points: _Points, kind: str) -> str:
        places = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        return f'<polyline class="{kind}" points="{places}"/>'

    def dot(self, x: float, y: float, radius: float) -> str:
        return f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="{radius:.1f}"/>'

    def text(self, x: float, y: float, words: str, anchor: str = "middle") -> str:
        return f'<text x="{self.x(x):.1f}" y="{self.y(y):.1f}" dy="-6" text-anchor="{anchor}">{words}</text>'

    def drawn(self, said: str, parts: Iterable[str], names: tuple[str, str], ticks: tuple[_Ticks, _Ticks]) -> Markup:
        """Return the drawing: what it says in words, its shapes, names and ticks of both axes, x first."""
        level = (
            f'<path class="grid" d="M{_LEFT:g} {self.y(at):.1f}H{_RIGHT:g}"/>'
            f'<text x="{_LEFT - 6:g}" y="{self.y(at) + 4:.1f}" text-anchor="end">{words}</text>'
            for at, words in ticks[1]
        )
        below = (
            f'<text x="{self.x(at):.1f}" y="{_BOTTOM + 16:g}" text-anchor="middle">{words}</text>'
            for at, words in ticks[0]
        )
        named = (
            f'<text x="{_RIGHT:g}" y="{_BOTTOM + 33:g}" text-anchor="end">{names[0]}</text>'
            f'<text x="0" y="11">{names[1]}</text>'
        )
        return _svg(said, _HEIGHT, "".join((*level, *below, named, *parts)))


def _svg(said: str, height: float, content: str) -> Markup:
    head = f'<svg class="plot" role="img" aria-label="{escape(said)}" viewBox="0 0 {_WIDTH:g} {height:g}">'
    return Markup(f"{head}{content}</svg>")  # noqa: S704 numbers and words of this file


def _nothing(said: str, what: str) -> Markup:
    return _svg(said, 40.0, f'<text x="{_WIDTH / 2:g}" y="24" text-anchor="middle">{what}</text>')


def _round_ticks(low: float, high: float, unit: str = "") -> list[tuple[float, str]]:
    """Return round numbers between two, at most six."""
    step = 10.0 ** floor(log10((high - low) / _MOST_TICKS or 1.0))
    step *= next(times for times in (1.0, 2.0, 5.0, 10.0) if (high - low) / (times * step) <= _MOST_TICKS)
    first = -floor(-low / step + 1e-9)
    values = [n * step for n in range(first, floor(high / step + 1e-9) + 1)]
    return [(value, f"{100.0 * value:.3g}{unit}" if unit else f"{value:.4g}") for value in values]


def reliability_plot(bins: Sequence[ReliabilityBin]) -> Markup:
    """Draw predicted against observed error; the area of a dot, and the number at it, are its labels."""
    description = "Reliability: predicted against observed error; on the dashed line both are equal."
    if not bins:
        return _nothing(description, "not enough labels yet")
    described = (f"{b.predicted:.0%} predicted, {b.observed:.0%} observed of {b.count} labels" for b in bins)
    most = min(1.0, 1.12 * max([0.1, *(b.predicted for b in bins), *(b.observed for b in bins)]))
    chart, largest = _Chart(0.0, most, 0.0, most), max(b.count for b in bins) or 1
    parts = [
        chart.line([(0.0, 0.0), (most, most)], "goal"),
        chart.line([(b.predicted, b.observed) for b in bins], "thin"),
        *(chart.dot(b.predicted, b.observed, 2.0 + 4.0 * (b.count / largest) ** 0.5) for b in bins),
        *(chart.text(b.predicted, b.observed, str(b.count)) for b in _numbered_bins(bins, most)),
    ]
    ticks = _round_ticks(0.0, most, " %")
    names = "predicted error", "observed error"
    return chart.drawn(f"{description} {'; '.join(described)}.", parts, names, (ticks, ticks))


def _numbered_bins(bins: Sequence[ReliabilityBin], most: float) -> list[ReliabilityBin]:
    """Return the bins whose numbers do not lie on each other."""
    shown: list[ReliabilityBin] = []
    for one in reversed(bins):
        apart = (max(abs(one.predicted - it.predicted), abs(one.observed - it.observed)) for it in shown)
        if min(apart, default=most) >= 0.1 * most:
            shown.append(one)
    return shown


def uncertainty_plot(
    now: UncertaintyHistogram | None, at_fit: UncertaintyHistogram | None, threshold: float | None
) -> Markup:
    """Draw the shares of queries by u, now and when the version in force was fitted, and the threshold."""
    description = "Shares of queries by uncertainty u: now, and when the version in force was fitted."
    if now is None or not now.share or max(now.share) <= _LEAST_SHARE:
        return _nothing(description, "no traffic yet")
    if threshold is not None:
        above = sum(share for share, low in zip(now.share, now.edges, strict=False) if low >= threshold)
        description = f"{description} About {above:.0%} lie above the threshold {threshold:.3f} now."
    inner = [_logit(edge) for edge in now.edges[1:-1]]
    # The outermost, 0 and 1, are drawn one bin's width beyond the next.
    width = inner[1] - inner[0]
    edges = [inner[0] - width, *inner, inner[-1] + width]
    filled = [k for k, share in enumerate(now.share) if share > _LEAST_SHARE]
    fitted = at_fit.share if at_fit is not None and len(at_fit.share) == len(now.share) else ()
    chart = _Chart(edges[filled[0]], edges[filled[-1] + 1], 0.0, 1.3 * max([*now.share, *fitted]))
    shown = range(filled[0], filled[-1] + 1)
    parts = [
        f'<rect x="{chart.x(edges[k]):.1f}" y="{chart.y(now.share[k]):.1f}" '
        f'width="{chart.x(edges[k + 1]) - chart.x(edges[k]):.1f}" height="{_BOTTOM - chart.y(now.share[k]):.1f}"/>'
        for k in shown
    ]
    if fitted:
        parts.append(chart.line([(edges[k + side], fitted[k]) for k in shown for side in (0, 1)], "second"))
    if threshold is not None and 0.0 < threshold < 1.0 and chart.left <= _logit(threshold) <= chart.right:
        at = _logit(threshold)
        parts.append(chart.line([(at, 0.0), (at, chart.top)], "goal"))
        parts.append(chart.text(at, 0.88 * chart.top, "&#160;escalates →", "start"))
    ticks = [(_logit(u), text) for u, text in _TICKS_OF_U if chart.left <= _logit(u) <= chart.right]
    names = "u, logit scale", "share of queries"
    return chart.drawn(description, parts, names, (ticks, _round_ticks(0.0, chart.top, " %")))


def _logit(u: float) -> float:
    return log(u / (1.0 - u))


def frontier_plot(
    now: CostQualityCurve | None, at_fit: CostQualityCurve | None, target: float | None, large_only: float | None
) -> Markup:
    """Draw micro-F1 against sequential cost, or escalation while the costs are unknown."""
    aim = "" if target is None else ", the dashed line the target"
    description = f"Expected micro-F1 of every threshold against its cost; the dot is the threshold in force{aim}."
    if now is None or len(now.micro_f1) < _LEAST_POINTS:
        return _nothing(description, "not enough labels yet")
    wanted = "" if target is None else f" for a target of {target:g}"
    description = f"{description} The best reaches {max(now.micro_f1):.3f}{wanted}."
    has_cost = bool(now.sequential_cost)
    large_only = large_only if has_cost else None
    across, before = (
        () if one is None else one.sequential_cost if has_cost else one.escalation_rate for one in (now, at_fit)
    )
    heights = [*now.micro_f1, *([] if target is None else [target])]
    right = max([*across, *([] if large_only is None else [large_only])])
    chart = _Chart(min(across), right, min(heights) - 0.01, max(heights) + 0.01)
    parts = []
    if at_fit is not None and len(before) == len(at_fit.micro_f1):
        parts.append(chart.line(list(zip(before, at_fit.micro_f1, strict=True)), "second"))
    parts.append(chart.line(list(zip(across, now.micro_f1, strict=True)), "main"))
    if target is not None:
        parts.append(chart.line([(chart.left, target), (chart.right, target)], "goal"))
    if large_only is not None:
        parts.append(chart.line([(large_only, chart.bottom), (large_only, chart.top)], "thin"))
        parts.append(chart.text(large_only, chart.bottom, "large alone&#160;", "end"))
    if now.chosen is not None:
        place = across[now.chosen], now.micro_f1[now.chosen]
        side = "start" if place[0] < (chart.left + chart.right) / 2.0 else "end"
        parts += [chart.dot(*place, 5.0), chart.text(*place, "in force", side)]
    ticks = _round_ticks(chart.left, chart.right, "" if has_cost else " %"), _round_ticks(chart.bottom, chart.top)
    what = "cost of a query, sequential" if has_cost else "share escalated"
    return chart.drawn(description, parts, (what, "expected micro-F1"), ticks)


def label_plan_plot(plan: LabelPlan | None) -> Markup:
    """Draw the cost of a query against labels a day, on a logarithmic axis; the dot is at the present labels."""
    description = "Cost of a query against labels a day; the dot is at the present labels."
    points = [] if plan is None else [_place(one) for one in plan.outlooks if one.per_query > 0.0]
    if plan is None or len(points) < _LEAST_POINTS or plan.outlooks[plan.now].cost is None:
        return _nothing(description, "no costs, or not enough labels yet")
    costs, now = [cost for _, cost in points], plan.outlooks[plan.now]
    chart = _Chart(points[0][0], points[-1][0], min(costs) - _ROOM, max(costs) + _ROOM)
    parts = [chart.line(points, "main"), *([chart.dot(*_place(now), 5.0)] if now.per_query > 0.0 else [])]
    powers = range(ceil(chart.left), floor(chart.right) + 1)
    what = "share of queries labelled" if now.per_day is None else "labels a day"
    ticks = [(float(power), f"{10.0**power:,g}") for power in powers], _round_ticks(chart.bottom, chart.top)
    return chart.drawn(description, parts, (what, "cost of a query"), ticks)


def _place(one: LabelOutlook) -> tuple[float, float]:
    return log10(one.per_day or one.per_query), one.cost or 0.0


class Figures(NamedTuple):
    """The drawings of one workload."""

    reliability: Markup
    uncertainty: Markup
    frontier: Markup
    label_plan: Markup


class FigureStore:
    """Draws; reads what a version was fitted on once."""

    def __init__(self, cache: TopicCache) -> None:
        self._cache = cache
        # One version of each workload is asked for again and again.
        self._at_fit = lru_cache(64)(self._read)

    def of(self, status: WorkloadStatus) -> Figures:
        """Return the drawings that belong to a status."""
        frontier, uncertainty, version = None, None, status.calibration_version
        if version is not None and self._cache.line(status.workload, version) is not None:
            frontier, uncertainty = self._at_fit(status.workload, version)
        large_only = None if status.cost is None else status.cost.large_only
        return Figures(
            reliability_plot(status.calibration_error.bins),
            uncertainty_plot(status.uncertainty, uncertainty, status.uncertainty_threshold),
            frontier_plot(status.frontier, frontier, status.target.micro_f1, large_only),
            label_plan_plot(status.label_plan),
        )

    def _read(self, workload: str, version: int) -> tuple[CostQualityCurve | None, UncertaintyHistogram | None]:
        record = self._cache.version_json(workload, version)
        if record is None:
            return None, None
        details = CalibrationVersion.from_json(record).evidence.details
        try:
            frontier = CostQualityCurve.model_validate(details["frontier"])
            return frontier, UncertaintyHistogram.model_validate(details["uncertainty"])
        except (KeyError, ValidationError):
            # A version made of a bare map.
            return None, None


#: Of each line, at most; a service that began later is shown from its beginning.
SPAN = timedelta(hours=6)

_BINS = 96
_WIDE, _TALL, _MARGIN = 240.0, 48.0, 4.0
#: Reports are kept every 30 s up to this age and every 150 s beyond (:mod:`recalibrator.api.read_model.history`): twice
#: as long without one is a gap.
_OFTEN_S = (3_600.0, 60.0, 300.0)

#: Where reports come seldom, so many times as long as usual is a gap.
_SELDOM = 4.0


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
        return _WIDE * min(max((at - self.begin) / (self.end - self.begin), 0.0), 1.0)

    def is_gap(self, begin: float, end: float) -> bool:
        """Return whether nothing was reported for most of the time between two moments."""
        return sum(max(0.0, min(end, b) - max(begin, a)) for a, b in self.gaps) > 0.5 * (end - begin)


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
        names = ("micro-F1", "escalated", "cost of a query", "queries a second")
        return tuple(Sparkline(name, "–", "nothing to draw yet", Markup()) for name in names)
    begin, end = seen[0].at.timestamp(), now.timestamp()
    drift = [(a.at.timestamp(), b.at.timestamp()) for a, b in pairwise(seen) if a.drift in ALARMED]
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
    spans = list(pairwise(point.at.timestamp() for point in points))
    usual = _SELDOM * median(b - a for a, b in spans)
    recent_s, often, seldom = _OFTEN_S
    return [(a, b) for a, b in spans if b - a > max(usual, often if end - a <= recent_s else seldom)]


def _sparkline(name: str, values: _Points, texts: Sequence[str], frame: Frame, goal: float | None = None) -> Sparkline:
    if len(values) < _LEAST_POINTS or values[-1][0] <= values[0][0]:
        return Sparkline(name, texts[-1] if texts else "–", "nothing to draw yet", Markup())
    heights = [value for _, value in values]
    lowest, highest = (texts[heights.index(of(heights))] for of in (min, max))
    between = lowest if lowest == highest else f"{lowest} to {highest}"
    label = f"{name}: {texts[-1]}, {between}"
    if frame.gaps:
        label = f"{label}; nothing was reported for {sum(b - a for a, b in frame.gaps) / 60.0:.0f} minutes"
    return Sparkline(name, texts[-1], between, _drawn(label, values, frame, goal))


def _drawn(label: str, values: _Points, frame: Frame, goal: float | None) -> Markup:
    x, heights = frame.x, [*(value for _, value in values), *([] if goal is None else [goal])]
    low, reach = min(heights), max(heights) - min(heights)
    if not reach:
        low, reach = low - 0.5, 1.0  # a level line runs through the middle

    def y(value: float) -> float:
        return _TALL - _MARGIN - (_TALL - 2.0 * _MARGIN) * (value - low) / reach

    parts = [
        f'<rect class="{kind}" x="{x(a):.1f}" width="{x(b) - x(a):.1f}" height="{_TALL:g}"/>'
        for kind, spans in (("silent", frame.gaps), ("drift", frame.drift))
        for a, b in spans
    ]
    if goal is not None:
        parts.append(f'<path class="goal" d="M0 {y(goal):.1f}H{_WIDE:g}"/>')
    for at, is_bad, what in frame.marks:
        said = f"<title>{escape(what)}</title>"
        parts.append(f'<path class="mark{" fault" if is_bad else ""}" d="M{x(at):.1f} 0V{_TALL:g}">{said}</path>')
    steps, before = [], None
    for at, value in _thinned(values, frame):
        draws_on = before is not None and not frame.is_gap(before, at)
        # A round dot where a report stands alone.
        steps.append(f"{'L' if draws_on else 'M'}{x(at):.1f} {y(value):.1f}{'' if draws_on else 'h.01'}")
        before = at
    box = f'viewBox="0 0 {_WIDE:g} {_TALL:g}" preserveAspectRatio="none"'
    drawing = f'<svg class="spark" role="img" aria-label="{escape(label)}" {box}>{"".join(parts)}'
    return Markup(f'{drawing}<path class="line" d="{"".join(steps)}"/></svg>')  # noqa: S704 numbers, and escaped


def _thinned(values: _Points, frame: Frame) -> list[tuple[float, float]]:
    """Return the last value of each of :data:`_BINS` equal parts of the time: more would lie on each other."""
    by_place = {int(_BINS * frame.x(at) / _WIDE): (at, value) for at, value in values}
    return [values[0], *(value for value in by_place.values() if value != values[0])]
