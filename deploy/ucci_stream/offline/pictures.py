"""Pictures of calibrations made offline: the versions over a replayed file, and what one version decides by."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.calibration import CalibrationVersion
from schemas.labelled import LabelledExample
from schemas.status import CostQualityCurve, LabelPlan

Floats = NDArray[np.float64]

#: Of text, of what is fitted, of the target, of escalation, and of remarks; the same in every picture of a command.
INK, MAIN, GOAL, SECOND, MUTED = "#1f2933", "#0b6e99", "#b7472a", "#6b4fa0", "#66737f"

_LEAST_U = 1e-5
_BINS = 14
_RESAMPLED = 200
_BAND = (2.5, 97.5)
_NOTE = {"textcoords": "offset points", "color": MUTED, "fontsize": 9}


def pyplot() -> Any:
    """Return Matplotlib's interface to files alone."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    return plt


def over_time(size: tuple[float, float]) -> Any:
    """Return a figure, with room for quality above escalation over the same stretch."""
    figure, (top, bottom) = pyplot().subplots(
        2, 1, figsize=size, sharex=True, height_ratios=(2, 1), layout="constrained"
    )
    bottom.set_ylabel("escalated")
    bottom.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    return figure, top, bottom


def write(figure: Any, path: Path) -> Path:
    """Write a figure as PNG or SVG, by the path's ending, without the frame."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=INK)
        axes.title.set_color(INK)
    figure.savefig(path, dpi=130)
    pyplot().close(figure)
    return path


def plot_versions(versions: Sequence[tuple[int, CalibrationVersion]], path: Path) -> Path:
    """Draw estimated micro-F1 with its interval and the escalation rate of each version, by line of the file.

    ``versions``: line that brought the version about, and the version; at least one.
    """
    figure, top, bottom = over_time((9.0, 5.4))
    known = [(line, one.evidence, f1) for line, one in versions if (f1 := one.evidence.micro_f1) is not None]
    if known:
        lines, found, quality = zip(*known, strict=True)
        lower, upper = [f1.lower for f1 in quality], [f1.upper for f1 in quality]
        top.fill_between(lines, lower, upper, step="post", color=MAIN, alpha=0.18, lw=0)
        top.step(lines, [f1.estimate for f1 in quality], where="post", color=MAIN, lw=1.8)
        rates = [np.nan if one.escalation_rate is None else one.escalation_rate for one in found]
        bottom.step(lines, rates, where="post", color=SECOND, lw=1.8)
    _draw_goal(top, versions[-1][1].target.micro_f1)
    for line, version in versions:
        bottom.axvline(line, ymax=0.06, color=GOAL if version.evidence.trigger == "drift" else INK, lw=1.1)
    top.set_ylabel("estimated micro-F1")
    top.set_title("Versions by line of the file; ticks are versions, red ones follow a drift alarm", loc="left")
    bottom.set_xlabel("line")
    bottom.set_ylim(bottom=0.0)
    return write(figure, path)


def plot_calibration(
    version: CalibrationVersion, path: Path, examples: Sequence[LabelledExample] = (), sentence: str = ""
) -> Path:
    """Draw the map g with the threshold on u, and where it is known micro-F1 against cost of all thresholds.

    ``examples``: that it was made of; with them what was observed is drawn, and a band of maps of resampled lines.
    """
    weighed = version.evidence.details.get("frontier")
    panels = 1 if weighed is None else 2
    figure, row = pyplot().subplots(1, panels, figsize=(5.2 * panels, 4.6), layout="constrained", squeeze=False)
    figure.suptitle(sentence, x=0.012, ha="left", fontsize=11.5, fontweight="bold", color=INK)
    _draw_map(row[0][0], version, examples)
    if weighed is not None:
        _draw_frontier(row[0][1], version, CostQualityCurve.model_validate(weighed))
    return write(figure, path)


def plot_label_plan(plan: LabelPlan, path: Path) -> Path:
    """Draw the cost of a query, and how well micro-F1 is known, against labels a day; a line is at the present ones."""
    figure, (top, bottom) = pyplot().subplots(2, 1, figsize=(7.0, 5.4), sharex=True, layout="constrained")
    shown, now = [one for one in plan.outlooks if one.per_query > 0.0], plan.outlooks[plan.now]
    across = [one.per_day or one.per_query for one in shown]
    if now.cost is not None:
        top.plot(across, [one.cost for one in shown], color=MAIN, lw=2.0, marker="o", ms=4)
    bottom.plot(across, [one.half_width for one in shown], color=SECOND, lw=2.0, marker="o", ms=4)
    for axes in (top, bottom) if now.per_query > 0.0 else ():
        axes.axvline(now.per_day or now.per_query, color=GOAL, lw=1.2, ls="--", label="at present")
        axes.legend(frameon=False, fontsize=9)
    top.set_title("What labels buy, once they have come for long", loc="left")
    top.set_ylabel("cost of a query, sequential")
    bottom.set_xscale("log")
    bottom.set_ylim(bottom=0.0)
    bottom.set_ylabel("micro-F1 known to ± (95%)")
    bottom.set_xlabel("labels a day" if now.per_day is not None else "share of queries labelled")
    return write(figure, path)


def _draw_map(axes: Any, version: CalibrationVersion, examples: Sequence[LabelledExample]) -> None:
    labels = [one for one in examples if one.is_counted]
    known = sorted((one.uncertainty, not one.small_exact) for one in labels if one.uncertainty is not None)
    u = np.array([value for value, _ in known] or version.map.uncertainty, dtype=float)
    shown = np.clip(u, _LEAST_U, 1.0 - _LEAST_U)
    ends = np.log(shown[[0, -1]] / (1.0 - shown[[0, -1]]))
    across = 1.0 / (1.0 + np.exp(-np.linspace(ends[0], ends[1], 300)))
    axes.plot(across, version.error_probability(across), color=MAIN, lw=2.0, label="g(u)")
    if known:
        wrong = np.array([value for _, value in known], dtype=float)
        axes.fill_between(across, *error_band(u, wrong, across), color=MAIN, alpha=0.16, lw=0, label="95% of maps")
        bins = np.array_split(np.arange(len(u)), min(_BINS, max(1, len(u) // 10)))
        observed = [(np.median(shown[part]), wrong[part].mean()) for part in bins]
        axes.plot(*zip(*observed, strict=True), "o", ms=4, color=INK, label=f"observed, {len(bins[0])} lines each")
    if 0.0 < version.uncertainty_threshold < 1.0:
        label = f"escalates u > {version.uncertainty_threshold:.3g}"
        axes.axvline(version.uncertainty_threshold, color=GOAL, lw=1.2, ls="--", label=label)
    axes.set_xscale("logit")
    axes.xaxis.set_minor_formatter(lambda *_: "")
    axes.set_ylim(0.0, 1.0)
    axes.set_xlabel("uncertainty u of the small model's answer, logit scale")
    axes.set_ylabel("probability that the small answer is wrong")
    axes.set_title("Calibration map", loc="left", fontsize=11)
    axes.legend(frameon=False, loc="upper left", fontsize=9)


def _draw_goal(axes: Any, target: float | None) -> None:
    if target is not None:
        axes.axhline(target, color=GOAL, lw=1.2, ls="--", label=f"target {target:g}")
        axes.legend(frameon=False, loc="lower right", fontsize=9)


def _draw_frontier(axes: Any, version: CalibrationVersion, frontier: CostQualityCurve) -> None:
    across = frontier.sequential_cost or frontier.escalation_rate
    axes.plot(across, frontier.micro_f1, color=MAIN, lw=2.0)
    _draw_goal(axes, version.target.micro_f1)
    if (at := frontier.chosen) is not None:
        interval = version.evidence.details["micro_f1_95"]
        y = interval["estimate"]
        reach = ([y - interval["lower"]], [interval["upper"] - y])
        axes.errorbar([across[at]], [y], reach, fmt="o", ms=7, color=INK, elinewidth=1.2, capsize=3, zorder=4)
        note = f"chosen: escalates {frontier.escalation_rate[at]:.0%}"
        axes.annotate(note, (across[at], interval["lower"]), xytext=(8, -6), va="top", **_NOTE)
    cost = version.evidence.expected_cost
    if cost is not None and frontier.sequential_cost:
        # The policy that escalates all serves what the large model alone would, at the price of both.
        alone = (cost.large_only, frontier.micro_f1[0])
        axes.plot(*alone, marker="D", ms=6, mfc="white", mec=MUTED, lw=0, zorder=4)
        axes.annotate(f"large model alone {cost.large_only:g}", alone, xytext=(0, -16), ha="center", **_NOTE)
    axes.margins(y=0.12)
    axes.set_xlabel("cost of a query, sequential (small call = 1)" if frontier.sequential_cost else "escalated")
    axes.set_ylabel("expected micro-F1")
    axes.set_title("Every threshold: cost against quality", loc="left", fontsize=11)


def error_band(u: Floats, wrong: Floats, across: Floats, seed: int = 0) -> tuple[Floats, Floats]:
    """Return where 95% of isotonic maps lie that are fitted to resampled answers (percentile bootstrap).

    ``u``, ``wrong``: by rising u; ``wrong`` is 0 or 1. ``across``: where the band is read.
    """
    from scipy.optimize import isotonic_regression

    places, of_place = np.unique(u, return_inverse=True)
    draws = np.random.default_rng(seed).multinomial(len(u), np.full(len(u), 1.0 / len(u)), size=_RESAMPLED)
    maps = np.empty((_RESAMPLED, len(across)))
    for row, times in enumerate(draws):
        # Answers of equal u share one value of the map.
        weight = np.bincount(of_place, times)
        drawn = weight > 0.0
        share = np.bincount(of_place, times * wrong)[drawn] / weight[drawn]
        maps[row] = np.interp(across, places[drawn], isotonic_regression(share, weights=weight[drawn]).x)
    low, high = np.percentile(maps, _BAND, axis=0)
    return low, high
