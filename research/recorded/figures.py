"""Results → PNG: micro-F1 and escalation along the stream, and compliance against cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from research.recorded.scoring import BLOCK, TOLERANCE

_INK, _QUIET, _GRID = "#1f2933", "#5f6b76", "#dde3e8"
COLOURS = {
    "service": "#0b6e99",
    "service_strict": "#0b6e99",
    "service_handoff": "#2540a8",
    "static": "#b7472a",
    "released": "#c77700",
    "reselected": "#c77700",
    "naive": "#7a5195",
    "propensity": "#5b8c3a",
    "stratified": "#5b8c3a",
    "clairvoyant": "#2f9e8f",
    "clairvoyant_strict": "#2f9e8f",
    "large": "#9aa5b1",
    "oracle": "#1f2933",
}
_LABELS = {
    "large": (-9, 7),
    "naive": (9, 9),
    "reselected": (9, -18),
    "propensity": (9, -18),
    "service": (-9, 5),
    "service_strict": (-9, 9),
    "service_handoff": (-9, -14),
    "clairvoyant": (-9, 8),
    "clairvoyant_strict": (9, 9),
}
"""Where a label stands from its point, in points, away from its neighbours; elsewhere right above it."""
_SHOWN = {"static": 1.4, "released": 1.4, "naive": 1.4, "stratified": 1.4, "service": 2.6}


def draw(results: dict[str, Any], folder: Path) -> list[Path]:
    """Draw both figures and return their paths.

    Parameters
    ----------
    results : dict
        As :func:`research.recorded.experiment.run` returns them.
    folder : Path
    """
    return [_along(results, folder / "stream.png"), _trade(results, folder / "compliance.png")]


def _along(results: dict[str, Any], path: Path) -> Path:
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(11.5, 6.8), sharex=True, height_ratios=(3, 2), layout="constrained"
    )
    blocks = results["blocks"]
    at = (np.arange(len(blocks["oracle"]["goal"])) + 0.5) * BLOCK / 1000
    for name, width in _SHOWN.items():
        kwargs = {"color": COLOURS[name], "lw": width, "zorder": 3 + width}
        top.plot(at, blocks[name]["expected"], label=results["policies"][name]["title"], **kwargs)
        bottom.plot(at, blocks[name]["escalated"], **kwargs)
    goal = np.array(blocks["oracle"]["goal"])
    top.step(at, goal, where="mid", color=_INK, lw=1.2, ls="--", label="target, or the best in reach", zorder=9)
    bottom.step(at, blocks["oracle"]["escalated"], where="mid", color=_INK, lw=1.2, ls="--", zorder=9)
    top.fill_between(at, goal - TOLERANCE, goal, step="mid", color=_INK, alpha=0.08, lw=0)
    top.set_ylabel("micro-F1 of a block, expected")
    bottom.set_ylabel("large model ran")
    bottom.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    bottom.set(xlabel="queries, thousands", ylim=(0, 1))
    bottom.annotate("dashed: oracle", (0.005, 0.9), xycoords="axes fraction", color=_INK)
    _phases(results, top, bottom)
    top.legend(frameon=False, loc="lower left", ncols=3)
    low, high = top.get_ylim()
    top.set_ylim(low - 0.2 * (high - low), high)
    figure.savefig(path, dpi=140)
    plt.close(figure)
    return path


def _phases(results: dict[str, Any], top: Axes, bottom: Axes) -> None:
    length = results["queries"] / 1000
    for number, phase in enumerate(results["phases"]):
        for axes in (top, bottom):
            if phase["share"]:
                axes.axvspan(number * length, (number + 1) * length, color="#f3e6cf", alpha=0.55, lw=0, zorder=0)
        top.annotate(
            phase["title"],
            ((number + 0.5) * length, 1.01),
            xycoords=("data", "axes fraction"),
            ha="center",
            va="bottom",
            color=_INK,
            fontsize=10,
        )
    for axes in (top, bottom):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=_QUIET)
        axes.grid(axis="y", color=_GRID, lw=0.7)
        axes.set_axisbelow(True)
        axes.set_xlim(0, length * len(results["phases"]))


def _trade(results: dict[str, Any], path: Path) -> Path:
    figure, axes = plt.subplots(figsize=(8.4, 5.2), layout="constrained")
    axes.axvline(0.0, color=_QUIET, lw=1.0, ls=":")
    drawn = ((name, row) for name, row in results["policies"].items() if name in COLOURS)
    for name, row in drawn:
        at = row["over_oracle_tokens"], row["expected_on_target"]
        low, high = row["expected_on_target_range"]
        axes.plot([at[0], at[0]], [low, high], color=COLOURS[name], lw=1.6, alpha=0.6)
        axes.plot([*row["over_oracle_tokens_range"]], [at[1], at[1]], color=COLOURS[name], lw=1.6, alpha=0.6)
        axes.plot(*at, "o", color=COLOURS[name], ms=10 if name.startswith("service") else 8)
        across, up = _LABELS.get(name, (9, 7))
        axes.annotate(
            row["title"],
            at,
            xytext=(across, up),
            textcoords="offset points",
            color=COLOURS[name],
            ha="right" if across < 0 else "left",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
        )
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:+.0%}".replace("-", "−"))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_xlabel("sequential cost over the oracle's, by generated tokens")
    axes.set_ylabel("blocks whose expected micro-F1 is on target")
    axes.set_ylim(0.0, 1.06)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=_QUIET)
    axes.grid(color=_GRID, lw=0.7)
    axes.set_axisbelow(True)
    axes.margins(x=0.1)
    figure.savefig(path, dpi=140)
    plt.close(figure)
    return path
