"""What other thresholds would give: micro-F1 against cost, the policy in force on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from recalibrator.api.pages.svg_canvas import GOAL, MAIN, MUTED, SECOND, SQUARE, drawn, nothing_yet
from schemas.status import CostQualityCurve

_ROOM = 0.01
_LEAST_POINTS = 2


def frontier_plot(
    now: CostQualityCurve | None, at_fit: CostQualityCurve | None, target: float, large_only: float | None
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
        values = [*now.micro_f1, target]
        axes.set_ylim(min(values) - _ROOM, max(values) + _ROOM)
        axes.set_xlabel("cost of a query, sequential" if has_cost else "share escalated")
        axes.set_ylabel("expected micro-F1")
        if not has_cost:
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes.legend(loc="lower right", borderaxespad=0.3) if at_fit is not None and at_fit.micro_f1 else None

    return drawn(SQUARE, description, draw)


def _across(frontier: CostQualityCurve, *, has_cost: bool) -> tuple[float, ...]:
    return frontier.sequential_cost if has_cost else frontier.escalation_rate
