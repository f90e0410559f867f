"""What holds now: reliability, the histogram of u, and cost against quality."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Any

from markupsafe import Markup

from recalibrator.api.pages.svg_canvas import (
    GOAL,
    MAIN,
    MUTED,
    SECOND,
    SQUARE,
    drawn,
    goal,
    nothing_yet,
)
from schemas.status import CostQualityCurve, ReliabilityBin, UncertaintyHistogram

_TICKS = ((1e-5, "10⁻⁵"), (1e-4, "10⁻⁴"), (1e-3, ".001"), (0.01, ".01"), (0.1, ".1"), (0.5, ".5"), (0.9, ".9"))
_LEAST_SHARE = 0.001
_RELIABILITY_ROOM = 1.12


def reliability_plot(bins: Sequence[ReliabilityBin]) -> Markup:
    """Draw predicted against observed error; the area of a dot, and the number at it, are its labels."""
    description = "Reliability: predicted against observed error; on the dashed line both are equal."
    if bins:
        described = (f"{b.predicted:.0%} predicted, {b.observed:.0%} observed of {b.count} labels" for b in bins)
        description = f"{description} {'; '.join(described)}."
    if not bins:
        return nothing_yet(SQUARE[0], description, "not enough labels yet")

    def draw(axes: Any) -> None:
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
    if threshold is not None:
        above = sum(share for share, low in zip(now.share, now.edges, strict=False) if low >= threshold)
        description = f"{description} About {above:.0%} lie above the threshold {threshold:.3f} now."

    def draw(axes: Any) -> None:
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
_LEAST_POINTS = 2


def frontier_plot(
    now: CostQualityCurve | None, at_fit: CostQualityCurve | None, target: float | None, large_only: float | None
) -> Markup:
    """Draw micro-F1 against sequential cost, or escalation while the costs are unknown."""
    description = (
        "Expected micro-F1 of every threshold against its cost; the dot is the threshold in force"
        f"{'' if target is None else ', the dashed line the target'}."
    )
    if now is None or len(now.micro_f1) < _LEAST_POINTS:
        return nothing_yet(SQUARE[0], description, "not enough labels yet")
    wanted = "" if target is None else f" for a target of {target:g}"
    description = f"{description} The best reaches {max(now.micro_f1):.3f}{wanted}."

    def draw(axes: Any) -> None:
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
                "large alone",
                (large_only, 0.0),
                xycoords=("data", "axes fraction"),
                xytext=(-3, 4),
                textcoords="offset points",
                ha="right",
                color=MUTED,
                fontsize=7.5,
            )
        values = [*now.micro_f1, *goal(target)]
        axes.set_ylim(min(values) - _CURVE_ROOM, max(values) + _CURVE_ROOM)
        axes.set_xlabel("cost of a query, sequential" if has_cost else "share escalated")
        axes.set_ylabel("expected micro-F1")
        if not has_cost:
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes.legend(loc="lower right", borderaxespad=0.3) if at_fit is not None and at_fit.micro_f1 else None

    return drawn(SQUARE, description, draw)


def _across(frontier: CostQualityCurve, *, has_cost: bool) -> tuple[float, ...]:
    return frontier.sequential_cost if has_cost else frontier.escalation_rate
