"""What labels buy, in sentences for the page and the terminal."""

from __future__ import annotations

from itertools import islice

from schemas.status import LabelEffect, LabelOutlook, LabelPlan
from schemas.target_words import estimated

_NOTHING = 0.0005


def plan_lines(plan: LabelPlan) -> list[str]:
    """Return what the present labels buy, what more would, and what the latest have changed.

    Examples
    --------
    >>> few = LabelOutlook(per_query=0.005, per_day=500.0, half_width=0.0201, cost=1.6, found_after=650_000)
    >>> many = LabelOutlook(per_query=0.02, per_day=2_000.0, half_width=0.0129, cost=1.52, found_after=77_000)
    >>> for line in plan_lines(LabelPlan(now=0, outlooks=(few, many))):
    ...     print(line)
    At 500 labels a day (0.5% of queries) micro-F1 comes to be known to ±0.0201 (95%), while traffic stays as it is.
    A fall of 2 points that labels alone show is found after 650,000 queries, by an alarm or by the estimate.
    With 2,000 labels a day (2%) it would be ±0.0129, such a fall would be found after 77,000 queries, and a query \
would cost 5.0% less.
    """
    now, found = plan.outlooks[plan.now], plan.outlooks[plan.now].found_after
    known = f"micro-F1 comes to be known to ±{now.half_width:.4f} (95%), while traffic stays as it is"
    lines = [f"{_at(now)} {known}." if now.per_query > 0.0 else f"Without labels {known}."]
    fall = "No fall that labels alone show is found: u and agreement must show it."
    if found is not None:
        fall = f"A fall of 2 points that labels alone show is found after {found:,} queries"
        fall += ", by an alarm or by the estimate."
    lines.append(fall)
    # The next rate that is at least twice the present one.
    larger = (one for one in plan.outlooks if one.per_query > 0.0 and one.per_query >= 2.0 * now.per_query)
    lines += [_would(now, more) for more in islice(larger, 1)]
    return lines + ([] if plan.latest is None else [effect_line(plan.latest)])


def _labels(one: LabelOutlook) -> str:
    share = f"{100.0 * one.per_query:.2g}%"
    return f"{share} of queries labelled" if one.per_day is None else f"{one.per_day:,.0f} labels a day ({share})"


def _at(one: LabelOutlook) -> str:
    return f"At {_labels(one)}" if one.per_day is None else f"At {_labels(one)[:-1]} of queries)"


def _would(now: LabelOutlook, more: LabelOutlook) -> str:
    said = f"With {_labels(more)} it would be ±{more.half_width:.4f}"
    if more.found_after is not None:
        said += f", such a fall would be found after {more.found_after:,} queries"
    if now.cost is None or more.cost is None:
        return f"{said}."
    saved = 1.0 - more.cost / now.cost
    if abs(saved) < _NOTHING:
        return f"{said}, and a query would cost as much."
    return f"{said}, and a query would cost {100.0 * abs(saved):.1f}% {'less' if saved > 0.0 else 'more'}."


def effect_line(effect: LabelEffect) -> str:
    """Return what the latest labels have changed, as one sentence."""
    before, after = effect.uncertainty_threshold
    moved = f"The latest {effect.labels} labels, since {effect.since:%Y-%m-%d %H:%M} UTC, "
    if before == after:
        said = f"{moved}left the threshold on u at {after:.3g}"
    else:
        said = f"{moved}moved the threshold on u from {before:.3g} to {after:.3g}: by today's estimate micro-F1 "
        said += f"{effect.micro_f1[0]:.3f} → {effect.micro_f1[1]:.3f}"
        if effect.cost is not None:
            said += f", cost of a query {effect.cost[0]:.3g} → {effect.cost[1]:.3g}"
    if effect.measured is not None:
        old, new = map(estimated, effect.measured)
        said += f"; measured {old} by as many labels before, {new} by these"
    return f"{said}."
