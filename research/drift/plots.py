"""Plots of the report: rows flow in, SVG files flow out."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from research.drift.summary import Row, names, of

_STYLE = {"svg.hashsalt": "drift", "font.size": 8.0, "axes.spines.top": False, "axes.spines.right": False}


def heat(rows: list[Row], path: Path) -> None:
    """Draw compliance by family and policy, regret written into the cells."""
    policies = [name for name in names(rows, "policy") if "@" not in name and not name.startswith("ours-no-")]
    families = names(rows, "family")
    cells = [[of(of(rows, policy=policy), family=family) for policy in policies] for family in families]
    pol, regret = (
        np.array([[np.mean([row[key] for row in cell]) if cell else np.nan for cell in line] for line in cells])
        for key in ("pol", "regret")
    )
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(1.6 + 0.85 * len(policies), 1.2 + 0.28 * len(families)), layout="constrained")
        axes = figure.add_subplot()
        shown = axes.imshow(pol, cmap="RdYlGn", vmin=0.5, vmax=1.0, aspect="auto")
        axes.set_xticks(range(len(policies)), policies, rotation=30, ha="right")
        axes.set_yticks(range(len(families)), families)
        for (line, column), value in np.ndenumerate(pol):
            if np.isnan(value):
                continue
            text = f"{value:.2f} {100 * regret[line, column]:+.0f}%"
            dark = not 0.57 < value < 0.97
            axes.text(column, line, text, ha="center", va="center", fontsize=6, color="white" if dark else "black")
        figure.colorbar(shown, label="pol; in the cells pol and regret")
        _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    # A fixed date and salt: equal rows give equal files.
    with mpl.rc_context(_STYLE):
        figure.savefig(path, metadata={"Date": None})
