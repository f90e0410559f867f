"""Simulated rates and tails → PNG: errors over the number of labels, and what heavy tails cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

_INK, _QUIET, _GRID = "#1f2933", "#5f6b76", "#dde3e8"
_PARTS = {
    "l2": ("root mean square distance to g", "#c77700", "^"),
    "l1": ("mean distance to g", "#b7472a", "s"),
    "binned": ("ECE over deciles, as the paper measures it", "#0b6e99", "o"),
}
_TITLES = {"rising": "g smooth and rising", "steps": "g in three steps", "hump": "g not monotone"}


def draw(results: dict[str, Any], folder: Path) -> list[Path]:
    """Draw both figures and return their paths.

    ``results``: as :func:`research.paper.theory.simulate` returns them.
    """
    return [_rates(results, folder / "calibration_rate.png"), _tails(results["tails"], folder / "heavy_tails.png")]


def _style(panel: Axes, title: str) -> None:
    panel.set_title(title, loc="left", color=_INK, fontsize=12)
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(colors=_QUIET)
    panel.grid(color=_GRID, lw=0.7)
    panel.set_axisbelow(True)


def _save(figure: Any, path: Path) -> Path:
    figure.savefig(path, dpi=140)
    plt.close(figure)
    return path


def _rates(results: dict[str, Any], path: Path) -> Path:
    figure, axes = plt.subplots(2, 2, figsize=(11.0, 8.6), layout="constrained", sharey=True)
    panels = axes.ravel()
    for panel, (name, found) in zip(panels, results["rates"].items(), strict=False):
        _style(panel, _TITLES[name])
        labels = np.array([row["labels"] for row in found["rows"]])
        for part, (title, colour, marker) in _PARTS.items():
            values = [row[part] for row in found["rows"]]
            text = f"{title}: n^{found['exponents'][part]:.2f}".replace("-", "−")
            panel.plot(labels, values, color=colour, marker=marker, ms=5, lw=1.8, label=text)
        if name == "rising":
            theory = [row["theory"] for row in found["rows"]]
            panel.plot(labels, theory, color=_INK, lw=1.2, ls="--", label="theory of the mean distance, n^−1/3")
        start = found["rows"][0]
        for power, style in ((1 / 3, ":"), (1 / 2, "-.")):
            anchor = start["binned"] if power == 1 / 2 else start["l2"]
            line = anchor * (labels / labels[0]) ** -power
            panel.plot(
                labels, line, color=_QUIET, lw=1.0, ls=style, label="slope −1/3" if power < 0.4 else "slope −1/2"
            )
        panel.legend(frameon=False, fontsize=8, loc="lower left")
    _recorded(panels[-1], results["recorded"])
    for panel in panels:
        panel.set(xscale="log", yscale="log", xlabel="calibration labels n")
    for panel in axes[:, 0]:
        panel.set_ylabel("error of the isotonic map")
    return _save(figure, path)


def _recorded(panel: Axes, rows: list[dict[str, float]]) -> None:
    _style(panel, "Recorded outputs, 6,000 held-out queries")
    labels = np.array([row["labels"] for row in rows])
    binned = [row["binned"] for row in rows]
    panel.plot(labels, binned, color=_PARTS["binned"][1], marker="o", ms=5, lw=1.8, label="ECE over deciles")
    floor = [row["floor"] for row in rows]
    panel.plot(labels, floor, color=_INK, lw=1.2, ls="--", label="what this test set shows of a right map")
    for power, style, text in ((1 / 3, ":", "slope −1/3"), (1 / 2, "-.", "slope −1/2")):
        panel.plot(labels, binned[0] * (labels / labels[0]) ** -power, color=_QUIET, lw=1.0, ls=style, label=text)
    panel.legend(frameon=False, fontsize=8, loc="lower left")


def _tails(rows: list[dict[str, Any]], path: Path) -> Path:
    figure, panels = plt.subplots(1, 3, figsize=(13.0, 4.2), layout="constrained", sharey=True)
    place = np.arange(len(rows))[::-1]
    columns = (
        (
            "saving against large only, %",
            (("ucci_saving", "the paper's cost", "#0b6e99"), ("ucci_sequential_saving", "sequential", "#b7472a")),
        ),
        ("entropy's cost over UCCI's, %", (("entropy_over_ucci", "entropy", "#b7472a"),)),
        (
            "escalated share, %",
            (
                ("risky_ucci", "risky, UCCI", "#0b6e99"),
                ("risky_oracle", "risky, oracle", "#1f2933"),
                ("hidden_ucci", "hidden, UCCI", "#b7472a"),
            ),
        ),
    )
    for panel, (axis, series) in zip(panels, columns, strict=True):
        _style(panel, "")
        for name, title, colour in series:
            known = [at for at, row in zip(place, rows, strict=True) if row[name] is not None]
            values = [100.0 * row[name] for row in rows if row[name] is not None]
            panel.plot(values, known, "o", color=colour, ms=7, label=title, clip_on=False)
        panel.set_xlabel(axis)
        panel.set_xlim(left=min(0.0, panel.get_xlim()[0]))
        panel.legend(frameon=False, fontsize=9, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=len(series))
    panels[0].set_yticks(place, [row["title"] for row in rows])
    return _save(figure, path)
