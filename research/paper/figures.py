"""Results → PNG: the reliability diagram, the cost-accuracy front, and what each method pays at the target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from research.paper import published
from research.paper.measures import LARGE_COST
from research.paper.policies import TITLES

_INK, _QUIET, _GRID = "#1f2933", "#5f6b76", "#dde3e8"
COLOURS = {
    "ucci": "#0b6e99",
    "conformal": "#f2c14e",
    "frugal": "#1f2933",
    "entropy": "#b7472a",
    "max_probability": "#5b8c3a",
    "margin": "#2f9c95",
    "random": "#9aa5b1",
}
_MAPS = {
    "none": ("raw token margin", "#b7472a", "s"),
    "temperature": ("temperature", "#c77700", "^"),
    "isotonic": ("isotonic", "#0b6e99", "o"),
}
_WORKLOADS = {
    "recorded": "Recorded outputs",
    "addresses": "Public set: US addresses",
    "synthetic": "Synthetic, the paper's statistics",
}
_STROKES = {
    "ucci": (5.0, "-"),
    "conformal": (2.0, "--"),
    "frugal": (1.4, ":"),
    "entropy": (1.8, "-"),
    "random": (1.4, "--"),
}
"""Width and style: three methods lie on one line, each must show through the others."""


def draw(results: dict[str, Any], folder: Path) -> list[Path]:
    """Draw every figure of the results and return their paths.

    ``results``: by workload, as :func:`research.paper.experiment.run` returns them.
    """
    return [
        _reliability(results, folder / "reliability.png"),
        _front(results, folder / "pareto.png"),
        _at_target(results, folder / "cost_at_target.png"),
    ]


def _panels(results: dict[str, Any], height: float) -> tuple[Any, list[Axes]]:
    figure, axes = plt.subplots(1, len(results), figsize=(5.4 * len(results), height), layout="constrained")
    panels = list(axes) if len(results) > 1 else [axes]
    for panel, name in zip(panels, results, strict=True):
        panel.set_title(_WORKLOADS[name], loc="left", color=_INK, fontsize=12)
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(colors=_QUIET)
        panel.grid(color=_GRID, lw=0.7)
        panel.set_axisbelow(True)
    return figure, panels


def _save(figure: Any, path: Path) -> Path:
    figure.savefig(path, dpi=140)
    plt.close(figure)
    return path


def _reliability(results: dict[str, Any], path: Path) -> Path:
    figure, panels = _panels(results, 5.0)
    for panel, result in zip(panels, results.values(), strict=True):
        errors = {row["name"]: row["ece"] for row in result["calibration"]}
        panel.plot([0, 1], [0, 1], color=_QUIET, lw=1.0, ls="--")
        for name, (title, colour, marker) in _MAPS.items():
            bins = result["reliability"][name]
            at, seen = [one["forecast"] for one in bins], [one["observed"] for one in bins]
            label = f"{title}: ECE {errors[name]:.3f}"
            panel.plot(at, seen, color=colour, marker=marker, ms=6, lw=1.8, label=label, clip_on=False)
        panel.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="forecast error probability")
        panel.legend(frameon=False, loc="lower right", title="test set, deciles", alignment="left")
    panels[0].set_ylabel("observed share of wrong small answers")
    return _save(figure, path)


def _front(results: dict[str, Any], path: Path) -> Path:
    figure, panels = _panels(results, 4.8)
    for panel, (name, result) in zip(panels, results.items(), strict=True):
        for method, (width, style) in _STROKES.items():
            curve = result["curves"][method]
            panel.plot(
                curve["paper_cost"], curve["micro_f1"], color=COLOURS[method], lw=width, ls=style, label=TITLES[method]
            )
        panel.axhline(result["target"], color=_QUIET, lw=1.0, ls=":")
        panel.annotate(
            f"target {result['target']:.3f}",
            (LARGE_COST, result["target"]),
            xytext=(0, -13),
            textcoords="offset points",
            ha="right",
            color=_QUIET,
        )
        _single_models(panel, result)
        if name == "synthetic":
            costs = [published.AT_TARGET[method] for method in ("ucci", "conformal", "frugal", "entropy")]
            panel.plot(costs, [published.TARGET] * 4, "D", color=_INK, mfc="white", ms=6, label="printed in the paper")
        panel.margins(y=0.08)
        panel.set(xlim=(0.95, 3.1), xlabel="cost of a query, as the paper counts it (small call = 1)")
        panel.legend(frameon=False, loc="lower right", bbox_to_anchor=(1.0, 0.05))
    panels[0].set_ylabel("micro-F1, test set")
    return _save(figure, path)


def _single_models(panel: Axes, result: dict[str, Any]) -> None:
    for row in result["at_target"]:
        if row["name"] in ("small", "large"):
            at = row["paper_cost"], row["micro_f1"]
            panel.plot(*at, "o", color=_INK, ms=7, zorder=5)
            offset = (8, -4) if row["name"] == "small" else (-4, 8)
            side = "left" if row["name"] == "small" else "right"
            panel.annotate(row["title"], at, xytext=offset, textcoords="offset points", ha=side, color=_INK)


def _at_target(results: dict[str, Any], path: Path) -> Path:
    figure, panels = _panels(results, 3.6)
    shown = [row for result in results.values() for row in result["matched"] if row["name"] != "random"]
    least, most = (pick(row["paper_cost_interval"][side] for row in shown) for side, pick in ((0, min), (1, max)))
    for panel, result in zip(panels, results.values(), strict=True):
        rows = [row for row in result["matched"] if row["name"] != "random"][::-1]
        for place, row in enumerate(rows):
            low, high = row["paper_cost_interval"]
            panel.plot([low, high], [place, place], color=COLOURS[row["name"]], lw=2.2, solid_capstyle="round")
            panel.plot(row["paper_cost"], place, "o", color=COLOURS[row["name"]], ms=8)
            if row["name"] in published.AT_TARGET:
                panel.plot(published.AT_TARGET[row["name"]], place, "D", color=_INK, mfc="white", ms=6)
        panel.plot([], [], "o-", color=_QUIET, ms=8, label="here, 95 % interval")
        panel.plot([], [], "D", color=_INK, mfc="white", ms=6, label="printed in the paper")
        panel.set_yticks(range(len(rows)), [row["title"] for row in rows] if panel is panels[0] else [])
        panel.tick_params(axis="y", colors=_INK, length=0)
        panel.set(
            xlim=(min(1.4, least - 0.05), max(2.5, most + 0.05)),
            ylim=(-0.6, len(rows) - 0.4),
            xlabel="paper's cost at the matched target",
        )
        panel.grid(visible=False, axis="y")
    panels[0].legend(frameon=False, loc="lower right")
    return _save(figure, path)
