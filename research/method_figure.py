"""``python -m research.method_figure``: the picture in docs/method.md, from one real refit.

The core walks the first 20,000 queries of a stationary stream of the drift benchmark, drawn with a fixed seed. Then the
estimates of that moment are drawn: what both models' answers are worth at each u, and what every threshold would serve.

    python -m research.method_figure --out docs/method-figure.svg
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from recalibrator.fit.decide.candidate import Candidate
from recalibrator.fit.decide.threshold import Policies
from recalibrator.fit.estimate.estimate import Estimate, Expected
from recalibrator.fit.estimate.smoothing import kernel_mass, kernel_mean
from recalibrator.grid import Grid
from research.drift.policies.ours import Ours
from research.drift.simulate import walk
from research.drift.streams import offline, stream

Floats = NDArray[np.float64]

FAMILY, SEED, QUERIES = "stationary", 7, 20_000

_INK, _QUIET, _PAPER = "#1f2933", "#67727e", "#ffffff"
_SMALL, _LARGE, _FILL_SMALL, _FILL_LARGE = "#b7472a", "#0b6e99", "#f3d3c8", "#c6dfeb"
_SUM, _FILL_SUM = "#2d2f8f", "#d4d5ee"
_DARK = {
    _INK: "#e4e7eb",
    _QUIET: "#9aa5b1",
    _PAPER: "#11171c",
    _SMALL: "#f08a6c",
    _LARGE: "#5ab0d6",
    _FILL_SMALL: "#4b2a21",
    _FILL_LARGE: "#173a4a",
    _SUM: "#a9abf5",
    _FILL_SUM: "#2f3058",
}
"""What each colour becomes where the reader prefers a dark page."""

_STYLE = {
    "svg.hashsalt": "method",
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _QUIET,
    "axes.labelcolor": _INK,
    "axes.facecolor": _PAPER,
    "text.color": _INK,
    "xtick.color": _QUIET,
    "ytick.color": _QUIET,
}
_U_TICKS = (0.0005, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1)
_EDGE = 0.005
"""Share of the traffic at either end of u that is not drawn: a curve there rests on next to nothing."""


@dataclass(frozen=True, slots=True)
class Refit:
    """One refit: the grid, what was seen, and the target's margin in standard errors."""

    grid: Grid
    view: Candidate
    safety: float


def refit() -> Refit:
    """Walk the stream and look at everything as it stands at its end."""
    policy = Ours()
    with threadpool_limits(1):
        walk(stream(FAMILY, SEED, QUERIES), offline(SEED), policy)
        return Refit(Grid(policy.constants.grid), policy.core.evaluate(), policy.core.settings.target.safety)


def standard_errors(estimate: Estimate, width: int) -> tuple[Floats, Floats]:
    """Return the standard error of E[z | u] in each cell, of the small and of the large model.

    The same three terms as in Var F(t): noise of the smoothed labels, the agreement tilt, the rectifier.

    ``width``: support of the smoothing kernel, in cells.
    """
    cells = len(estimate.traffic)
    weight = np.square(kernel_mean(estimate.traffic, width)) * kernel_mass(cells, width)
    above = (np.arange(cells) > estimate.rectifier.split).astype(np.intp)

    def error(expected: Expected, model: int) -> Floats:
        noise = np.divide(expected.spread, weight, out=np.zeros(cells), where=weight > 0.0)
        slopes = estimate.shift.jacobian[model]
        tilt = np.einsum("ic,ij,jc->c", slopes, estimate.tilt.covariance, slopes)
        return np.sqrt(noise + tilt + estimate.rectifier.variance[model][above])

    return error(estimate.kept, 0), error(estimate.escalated, 1)


def draw(made: Refit, width: int) -> Figure:
    """Draw both curves above, and F(t) with its margin below."""
    view = made.view
    kept = 1.0 - view.policies.escalation_rate
    figure = Figure(figsize=(8.4, 7.0), layout="constrained", facecolor=_PAPER)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1.0, 1.0))
    chosen = float(kept[view.choice.index])
    _draw_curves(above, made, kept, width)
    _draw_policies(below, made, kept)
    for axes in (above, below):
        axes.axvline(chosen, color=_INK, linewidth=1.2, linestyle=(0, (4, 3)))
        axes.axhline(0.0, color=_QUIET, linewidth=0.9)
        axes.set_xlim(0.0, 1.0)
    _mark_u(above, made.grid, kept)
    below.set_xlabel("share of current queries with a lower u   (so 1 − x is the escalation rate of a threshold at x)")
    return figure


def _draw_curves(axes: Axes, made: Refit, kept: Floats, width: int) -> None:
    estimate = made.view.estimate
    middle = (kept[:-1] + kept[1:]) / 2.0
    shown = (middle > _EDGE) & (middle < 1.0 - _EDGE) & (estimate.traffic > 0.0)
    errors = standard_errors(estimate, width)
    parts = (
        ("E[z_small | u]", estimate.kept.value, errors[0], _SMALL, _FILL_SMALL),
        ("E[z_large | u]", estimate.escalated.value, errors[1], _LARGE, _FILL_LARGE),
    )
    for _, value, error, _, fill in parts:
        axes.fill_between(middle[shown], (value - error)[shown], (value + error)[shown], color=fill, linewidth=0.0)
    for name, value, _, colour, _ in parts:
        axes.plot(middle[shown], value[shown], color=colour, linewidth=2.0)
        place = int(np.searchsorted(middle, 0.66))
        offset = (-8, -22) if colour == _SMALL else (24, 16)
        axes.annotate(
            name,
            (middle[place], value[place]),
            offset,
            textcoords="offset points",
            color=colour,
            ha="right" if colour == _SMALL else "center",
            va="center",
        )
    axes.set_ylabel("expected score z of one answer\n(band: ± 1 standard error)")
    axes.annotate("z = 0: on target", (0.005, 0.0), (0, -4), textcoords="offset points", va="top", color=_QUIET)
    low, high = axes.get_ylim()
    axes.set_ylim(low - 0.2 * (high - low), high + 0.12 * (high - low))
    chosen = float(kept[made.view.choice.index])
    for x, text in (
        (chosen / 2.0, "the small answer is served"),
        ((1.0 + chosen) / 2.0, "the large answer\nis served"),
    ):
        axes.text(x, 0.03, text, ha="center", va="bottom", color=_QUIET, transform=axes.get_xaxis_transform())


def _draw_policies(axes: Axes, made: Refit, kept: Floats) -> None:
    policies: Policies = made.view.policies
    index, safety = made.view.choice.index, made.safety
    bound = policies.value - safety * policies.error
    x, y = float(kept[index]), float(bound[index])
    axes.fill_between(kept, bound, policies.value, color=_FILL_SUM, linewidth=0.0)
    axes.plot(kept, policies.value, color=_SUM, linewidth=2.0)
    axes.plot(kept, bound, color=_SUM, linewidth=1.0, linestyle=(0, (2, 1.5)))
    axes.plot([x], [y], marker="o", markersize=7, color=_SUM, markeredgecolor=_PAPER)
    place = int(np.searchsorted(kept, 0.3))
    notes = (
        ("F(t)", (float(kept[place]), float(policies.value[place])), (0, 12), _SUM),
        (f"F(t) − {safety:g}·SE(t)", (float(kept[place]), float(bound[place])), (0, -14), _SUM),
    )
    for text, at, offset, colour in notes:
        axes.annotate(text, at, offset, textcoords="offset points", color=colour, ha="center", va="center")
    u = float(policies.thresholds[index])
    axes.annotate(
        f"chosen: the largest t whose\nlower line is still ≥ 0\nt = {u:.4f} on u",
        (x, y),
        (-26, -52),
        textcoords="offset points",
        ha="right",
        va="center",
        arrowprops={"arrowstyle": "-", "color": _QUIET, "shrinkB": 5},
    )
    axes.annotate("target: F = 0", (0.005, 0.0), (0, -4), textcoords="offset points", va="top", color=_QUIET)
    axes.set_ylabel("expected score z of what is served\nwhen exactly u > t escalates")
    low, high = axes.get_ylim()
    axes.set_ylim(low - 0.2 * (high - low), high)
    for x_end, text, side in ((0.006, "t = −1: all escalate", "left"), (0.994, "t = 1:\nnone escalates", "right")):
        axes.text(x_end, 0.03, text, ha=side, va="bottom", color=_QUIET, transform=axes.get_xaxis_transform())


def _mark_u(axes: Axes, grid: Grid, kept: Floats) -> None:
    """Name u itself along the upper edge."""
    top = axes.secondary_xaxis("top")
    places = [float(kept[grid.index(u) + 1]) for u in _U_TICKS]
    top.set_xticks(places, [f"{u:g}" for u in _U_TICKS])
    top.set_xlabel("u", color=_QUIET)
    top.tick_params(colors=_QUIET)
    top.spines["top"].set_color(_QUIET)


def with_dark_colours(svg: str) -> str:
    """Return an SVG that changes its colours where the reader prefers a dark page."""
    rules = "".join(
        f'[style*="{name}: {light}"]{{{name}:{dark}!important}}'
        for light, dark in _DARK.items()
        for name in ("fill", "stroke")
    )
    head, mark, rest = svg.partition("<defs>")
    return f"{head}<style>@media (prefers-color-scheme:dark){{{rules}}}</style>\n {mark}{rest}"


def main() -> int:
    """Draw, write, and say how large the file is."""
    parser = argparse.ArgumentParser(prog="python -m research.method_figure", description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=Path("docs/method-figure.svg"), help="an .svg, or a .png to look at"
    )
    path: Path = parser.parse_args().out
    made = refit()
    with mpl.rc_context(_STYLE):
        figure = draw(made, Ours().constants.bandwidth_cells)
        if path.suffix == ".svg":
            # A fixed date and salt: equal refits give equal files.
            figure.savefig(path, metadata={"Date": None})
            path.write_text(with_dark_colours(path.read_text(encoding="utf-8")), encoding="utf-8")
        else:
            figure.savefig(path, dpi=110)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
