"""Pictures of calibrations made offline: versions over a replayed file, and what one version decides by."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from schemas.calibration import CalibrationMap, CalibrationVersion
from schemas.status import CostQualityCurve

INK, MAIN, GOAL = "#1f2933", "#0b6e99", "#b7472a"
"""Of text, of what is fitted, and of the target; the same in every picture of the offline commands."""

_SECOND = "#6b4fa0"
_LEAST_U = 1e-5


def plot_versions(versions: Sequence[tuple[int, CalibrationVersion]], path: Path) -> Path:
    """Draw estimated micro-F1 with its interval and the escalation rate of each version, by line of the file.

    Parameters
    ----------
    versions : sequence of (int, CalibrationVersion)
        Line that brought the version about, and the version; at least one.
    path : Path
        PNG or SVG, by its ending.
    """
    plt = pyplot()
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(9.0, 5.4), sharex=True, height_ratios=(2, 1), layout="constrained"
    )
    known = [(line, version.evidence) for line, version in versions if version.evidence.micro_f1 is not None]
    lines = [line for line, _ in known]
    intervals = np.array([[f1.lower, f1.estimate, f1.upper] for _, one in known if (f1 := one.micro_f1) is not None])
    if len(intervals):
        top.fill_between(lines, intervals[:, 0], intervals[:, 2], step="post", color=MAIN, alpha=0.18, lw=0)
        top.step(lines, intervals[:, 1], where="post", color=MAIN, lw=1.8)
        rates = [np.nan if one.escalation_rate is None else one.escalation_rate for _, one in known]
        bottom.step(lines, rates, where="post", color=_SECOND, lw=1.8)
    if (target := versions[-1][1].target.micro_f1) is not None:
        top.axhline(target, color=GOAL, lw=1.1, ls="--", label="target")
        top.legend(loc="upper right", frameon=False)
    for line, version in versions:
        bottom.axvline(line, ymax=0.06, color=GOAL if version.evidence.trigger == "drift" else INK, lw=1.1)
    top.set_ylabel("estimated micro-F1")
    top.set_title("Versions by line of the file; ticks are versions, red ones follow a drift alarm", loc="left")
    bottom.set_ylabel("escalated")
    bottom.set_xlabel("line")
    bottom.set_ylim(bottom=0.0)
    bottom.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    return write(plt, figure, (top, bottom), path)


def plot_calibration(
    fitted: CalibrationMap,
    uncertainty_threshold: float,
    frontier: CostQualityCurve | None,
    target: float | None,
    path: Path,
) -> Path:
    """Draw the map g with the threshold on u, and where known micro-F1 against cost of all thresholds.

    Parameters
    ----------
    frontier : CostQualityCurve or None
        A ``router.json`` holds none.
    path : Path
        PNG or SVG, by its ending.
    """
    plt = pyplot()
    panels = 1 if frontier is None else 2
    figure, row = plt.subplots(1, panels, figsize=(4.8 * panels, 3.8), layout="constrained", squeeze=False)
    left, *rest = row[0]
    u = np.clip(np.asarray(fitted.uncertainty), _LEAST_U, 1.0 - _LEAST_U)
    left.plot(u, fitted.error_probability, color=MAIN, lw=1.8)
    left.set_xscale("logit")
    left.xaxis.set_minor_formatter(lambda *_: "")
    if 0.0 < uncertainty_threshold < 1.0:
        left.axvline(uncertainty_threshold, color=GOAL, lw=1.1, ls="--", label=f"u > {uncertainty_threshold:.4f}")
        left.legend(title="escalates", frameon=False, loc="upper left")
    left.set_ylim(0.0, 1.0)
    left.set_xlabel("uncertainty u, logit scale")
    left.set_ylabel("g(u), probability of error")
    left.set_title("Calibration map", loc="left")
    for axes in rest:
        if frontier is not None:
            _draw_frontier(axes, frontier, target)
    return write(plt, figure, row[0], path)


def _draw_frontier(axes: Any, frontier: CostQualityCurve, target: float | None) -> None:
    across = frontier.sequential_cost or frontier.escalation_rate
    axes.plot(across, frontier.micro_f1, color=MAIN, lw=1.8)
    if target is not None:
        axes.axhline(target, color=GOAL, lw=1.1, ls="--", label=f"target {target}")
        axes.legend(frameon=False, loc="lower right")
    if frontier.chosen is not None:
        axes.scatter(across[frontier.chosen], frontier.micro_f1[frontier.chosen], s=44, color=MAIN, zorder=4)
    axes.set_xlabel("cost of a query, sequential" if frontier.sequential_cost else "escalated")
    axes.set_ylabel("expected micro-F1")
    axes.set_title("Every threshold; the dot is the chosen one", loc="left")


def pyplot() -> Any:
    """Return Matplotlib's interface to files alone."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    return plt


def write(plt: Any, figure: Any, every: Sequence[Any], path: Path) -> Path:
    """Write a figure with these axes to a file, without the frame."""
    for axes in every:
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=INK)
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path
