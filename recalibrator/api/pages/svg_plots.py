"""What holds now: reliability, the histogram of u, and cost against quality; beside each, what held at the fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from html import escape
from math import ceil, floor, log, log10
from typing import NamedTuple

from markupsafe import Markup
from pydantic import ValidationError

from recalibrator.api.read_model.topic_cache import TopicCache
from schemas.calibration import CalibrationVersion
from schemas.status import (
    CostQualityCurve,
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
_ROOM = 0.05
"""Below and above a curve of costs."""

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
    if now is None or not now.share or max(now.share) <= _LEAST_SHARE:
        return _nothing(description, "no traffic yet")
    if threshold is not None:
        above = sum(share for share, low in zip(now.share, now.edges, strict=False) if low >= threshold)
        description = f"{description} About {above:.0%} lie above the threshold {threshold:.3f} now."
    edges = _logits(now.edges)
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
    return chart.drawn(
        description, parts, ("u, logit scale", "share of queries"), (ticks, _round_ticks(0.0, chart.top, " %"))
    )


def _logits(edges: Sequence[float]) -> list[float]:
    """Return edges on the logit scale; the outermost, 0 and 1, are drawn one bin's width beyond the next."""
    inner = [_logit(edge) for edge in edges[1:-1]]
    width = inner[1] - inner[0]
    return [inner[0] - width, *inner, inner[-1] + width]


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
    across = _across(now, has_cost=has_cost)
    heights = [*now.micro_f1, *([] if target is None else [target])]
    right = max([*across, *([large_only] if has_cost and large_only is not None else [])])
    chart = _Chart(min(across), right, min(heights) - 0.01, max(heights) + 0.01)
    ticks = _round_ticks(chart.left, chart.right, "" if has_cost else " %"), _round_ticks(chart.bottom, chart.top)
    what = "cost of a query, sequential" if has_cost else "share escalated"
    parts = _frontier_parts(chart, now, at_fit, target, large_only if has_cost else None)
    return chart.drawn(description, parts, (what, "expected micro-F1"), ticks)


def _frontier_parts(
    chart: _Chart,
    now: CostQualityCurve,
    at_fit: CostQualityCurve | None,
    target: float | None,
    large_only: float | None,
) -> Iterator[str]:
    has_cost = bool(now.sequential_cost)
    across = _across(now, has_cost=has_cost)
    if at_fit is not None and len(_across(at_fit, has_cost=has_cost)) == len(at_fit.micro_f1):
        yield chart.line(list(zip(_across(at_fit, has_cost=has_cost), at_fit.micro_f1, strict=True)), "second")
    yield chart.line(list(zip(across, now.micro_f1, strict=True)), "main")
    if target is not None:
        yield chart.line([(chart.left, target), (chart.right, target)], "goal")
    if large_only is not None:
        yield chart.line([(large_only, chart.bottom), (large_only, chart.top)], "thin")
        yield chart.text(large_only, chart.bottom, "large alone&#160;", "end")
    if now.chosen is not None:
        place = across[now.chosen], now.micro_f1[now.chosen]
        yield chart.dot(*place, 5.0)
        yield chart.text(*place, "in force", "start" if place[0] < (chart.left + chart.right) / 2.0 else "end")


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


def _across(frontier: CostQualityCurve, *, has_cost: bool) -> tuple[float, ...]:
    return frontier.sequential_cost if has_cost else frontier.escalation_rate


#: Versions whose record is kept read: one of each workload is asked for again and again.
_MOST_READ = 64


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
        self._at_fit = lru_cache(_MOST_READ)(self._read)

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
            return (
                CostQualityCurve.model_validate(details["frontier"]),
                UncertaintyHistogram.model_validate(details["uncertainty"]),
            )
        except (KeyError, ValidationError):
            # A version of an earlier release, or one made of a bare map.
            return None, None
