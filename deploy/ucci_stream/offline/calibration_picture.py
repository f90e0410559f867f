"""The picture of a calibration made offline: the map over what was observed, and cost against quality."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import ticker
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from schemas.calibration import Z95, CalibrationVersion
from schemas.labelled import LabelledExample
from schemas.status import CostQualityCurve
from ucci_stream.offline.version_plots import GOAL, INK, MAIN, pyplot, write

Floats = NDArray[np.float64]

_MUTED, _GRID = "#66737f", "#e4e9ed"
_LEAST_U = 1e-5
_BINS = 14
_RESAMPLED = 200
_BAND = (2.5, 97.5)


def plot_first_version(
    version: CalibrationVersion, examples: Sequence[LabelledExample], sentence: str, path: Path
) -> Path:
    """Draw the map g with the data and a band beside the frontier of all thresholds.

    Parameters
    ----------
    examples : sequence of LabelledExample
        That it was made of.
    sentence : str
        Stands above both.
    path : Path
        PNG or SVG, by its ending.
    """
    plt = pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.4, 4.6), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.08, wspace=0.06)
    figure.suptitle(sentence, x=0.012, ha="left", fontsize=11.5, fontweight="bold", color=INK)
    _draw_map(left, version, examples)
    _draw_frontier(right, version, CostQualityCurve.model_validate(version.evidence.details["frontier"]))
    for axes in (left, right):
        axes.grid(color=_GRID, lw=0.8)
        axes.set_axisbelow(True)
        axes.title.set_color(INK)
    return write(plt, figure, (left, right), path)


def _draw_map(axes: Any, version: CalibrationVersion, examples: Sequence[LabelledExample]) -> None:
    known = [(example.uncertainty, not example.small_exact) for example in examples if example.uncertainty is not None]
    u, wrong = (np.array(column, dtype=float) for column in zip(*sorted(known), strict=True))
    shown = np.clip(u, _LEAST_U, 1.0 - _LEAST_U)
    across = _logit_space(shown.min(), shown.max())
    low, high = error_band(u, wrong, across)
    axes.fill_between(across, low, high, color=MAIN, alpha=0.16, lw=0, label="95 % of maps of resampled lines")
    axes.plot(across, version.error_probability(across), color=MAIN, lw=2.0, label="g(u)")
    place, share, below, above = observed_errors(shown, wrong)
    axes.errorbar(
        place,
        share,
        (share - below, above - share),
        fmt="o",
        ms=4,
        color=INK,
        ecolor=_MUTED,
        elinewidth=0.9,
        label=f"observed, about {len(u) // len(place)} lines each",
    )
    threshold = version.uncertainty_threshold
    if shown.min() < threshold < shown.max():
        axes.axvline(threshold, color=GOAL, lw=1.2, ls="--")
        axes.annotate(
            f"escalates u > {threshold:.3g}",
            (threshold, 0.0),
            xytext=(6, 8),
            textcoords="offset points",
            color=GOAL,
            fontsize=9,
        )
    axes.set_xscale("logit", one_half="0.5")
    axes.xaxis.set_major_locator(ticker.FixedLocator([1e-4, 1e-3, 1e-2, 0.1, 0.5, 0.9]))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.set_xlim(shown.min() * 0.9, min(shown.max() * 1.1, 1.0 - _LEAST_U))
    axes.set_ylim(0.0, 1.0)
    axes.set_xlabel("uncertainty u of the small model's answer, logit scale")
    axes.set_ylabel("probability that the small answer is wrong")
    axes.set_title("Calibration map", loc="left", fontsize=11)
    axes.legend(frameon=False, loc="upper left", fontsize=9)


def _draw_goal(axes: Any, target: float) -> None:
    axes.axhline(target, color=GOAL, lw=1.2, ls="--")
    axes.annotate(
        f"target {target:g}",
        (1.0, target),
        xycoords=("axes fraction", "data"),
        xytext=(0, 4),
        textcoords="offset points",
        ha="right",
        color=GOAL,
        fontsize=9,
    )


def _draw_frontier(axes: Any, version: CalibrationVersion, frontier: CostQualityCurve) -> None:
    across = frontier.sequential_cost or frontier.escalation_rate
    axes.plot(across, frontier.micro_f1, color=MAIN, lw=2.0)
    if version.target.micro_f1 is not None:
        _draw_goal(axes, version.target.micro_f1)
    if frontier.chosen is not None:
        interval, at = version.evidence.details["micro_f1_95"], frontier.chosen
        x, y = across[at], interval["estimate"]
        reach = ([y - interval["lower"]], [interval["upper"] - y])
        axes.errorbar([x], [y], reach, fmt="o", ms=7, color=INK, elinewidth=1.2, capsize=3, zorder=4)
        axes.annotate(
            f"chosen: u > {version.uncertainty_threshold:.3g}\nescalates {frontier.escalation_rate[at]:.0%}",
            (x, interval["lower"]),
            xytext=(8, -6),
            textcoords="offset points",
            va="top",
            color=INK,
            fontsize=9,
        )
    note = {"textcoords": "offset points", "color": _MUTED, "fontsize": 9}
    axes.annotate("nothing escalated", (across[-1], frontier.micro_f1[-1]), xytext=(8, 0), **note)
    axes.annotate("all escalated", (across[0], frontier.micro_f1[0]), xytext=(0, -8), ha="right", va="top", **note)
    cost = version.evidence.expected_cost
    if cost is not None and frontier.sequential_cost:
        # The policy that escalates all serves what the large model alone would, at the price of both.
        alone = (cost.large_only, frontier.micro_f1[0])
        axes.plot(*alone, marker="D", ms=6, mfc="white", mec=_MUTED, lw=0, zorder=4)
        axes.annotate(f"large model alone {cost.large_only:g}", alone, xytext=(0, 9), ha="center", **note)
    axes.margins(y=0.12)
    axes.set_xlabel("cost of a query, sequential (small call = 1)" if frontier.sequential_cost else "escalated")
    axes.set_ylabel("expected micro-F1")
    axes.set_title("Every threshold: cost against quality", loc="left", fontsize=11)


def observed_errors(u: Floats, wrong: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Return bins of equally many answers: mean u, share of wrong answers, and its 95 % interval (Wilson, 1927).

    Parameters
    ----------
    u, wrong : ndarray, shape (answers,)
        By rising u; ``wrong`` is 0 or 1.

    Returns
    -------
    tuple of ndarray, shape (bins,)
        Place, share, lower and upper end.
    """
    bins = [part for part in np.array_split(np.arange(len(u)), min(_BINS, max(1, len(u) // 10))) if len(part)]
    # On the axis of the picture the middle of a bin is the mean of the logits.
    place = np.array([_expit(float(np.mean(np.log(u[part] / (1.0 - u[part]))))) for part in bins])
    count = np.array([len(part) for part in bins], dtype=float)
    share = np.array([wrong[part].mean() for part in bins])
    centre = (share + Z95**2 / (2.0 * count)) / (1.0 + Z95**2 / count)
    half = Z95 / (1.0 + Z95**2 / count) * np.sqrt(share * (1.0 - share) / count + Z95**2 / (4.0 * count**2))
    return place, share, np.minimum(share, centre - half), np.maximum(share, centre + half)


def error_band(u: Floats, wrong: Floats, across: Floats, seed: int = 0) -> tuple[Floats, Floats]:
    """Return where 95 % of isotonic maps lie that are fitted to resampled answers (percentile bootstrap).

    Parameters
    ----------
    u, wrong : ndarray, shape (answers,)
        By rising u.
    across : ndarray, shape (points,)
        Where the band is read.
    seed : int
        Of the resampling.
    """
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


def _logit_space(low: float, high: float, points: int = 300) -> Floats:
    ends = [math.log(value / (1.0 - value)) for value in (low, high)]
    return 1.0 / (1.0 + np.exp(-np.linspace(ends[0], ends[1], points)))


def _expit(value: float) -> float:
    return 1.0 / (1.0 + math.exp(-value))
