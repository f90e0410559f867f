"""What all plots share: size, type, colours, and the way from a figure to markup.

Colours are the page's own CSS variables, so that one drawing serves light and dark.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from html import escape
from threading import Lock
from typing import Any

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

# Placeholders that no plot would use by itself; each becomes a CSS variable of the page.
INK, MUTED, MAIN, GOAL, SECOND, LINE = (f"#0{n}0{n + 1}0{n + 2}" for n in range(1, 7))
_VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    MAIN: "--main",
    GOAL: "--goal",
    SECOND: "--second",
    LINE: "--line",
}
SQUARE = (3.5, 2.75)
"""In inches. At this size the type stays readable when a telephone shows a plot at its full width."""

_LOW = 0.6
_GROUP_ID = re.compile(r'<g id="[^"]*"')
"""Nothing refers to these, and every drawing has the same."""

_STYLE: Any = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    # Widths are measured by the font that comes with the library; the page sets its own.
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.linewidth": 1.0,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.7,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 3.0,
    "ytick.major.size": 0.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "legend.fontsize": 8.5,
    "legend.handlelength": 1.3,
}
# Style settings are the library's global state, and requests are served by several threads.
_LOCK = Lock()


def goal(target: float | None) -> tuple[float, ...]:
    """Return what an axis must have room for besides the data: the target, where there is one."""
    return () if target is None else (target,)


def drawn(size: tuple[float, float], description: str, draw: Callable[[Any], None]) -> Markup:
    """Return a drawing as markup.

    Parameters
    ----------
    size : tuple of float
        Width and height, in inches.
    """
    # Several drawings stand in one page: the ids of each are made of its own description.
    with _LOCK, rc_context(_STYLE | {"svg.hashsalt": description}):
        figure = Figure(figsize=size, layout="constrained")
        figure.patch.set_alpha(0.0)
        axes: Any = figure.subplots()
        axes.patch.set_alpha(0.0)
        axes.grid(visible=False, axis="x")
        draw(axes)
        return _svg(figure, description)


def nothing_yet(width: float, description: str, what: str) -> Markup:
    """Return a low drawing, so many inches wide, that says what is missing of what the description names."""

    def draw(axes: Any) -> None:
        axes.spines["bottom"].set_visible(False)
        axes.text(0.5, 0.5, what, transform=axes.transAxes, ha="center", va="center", color=MUTED)
        axes.set_xticks([])
        axes.set_yticks([])

    return drawn((width, _LOW), description, draw)


def _svg(figure: Figure, description: str) -> Markup:
    buffer = io.StringIO()
    # Not `Figure.savefig`: that draws everything once more before, for layouts that a drawing may change.
    canvas: Any = FigureCanvasSVG(figure)
    canvas.print_svg(buffer, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    markup = buffer.getvalue()
    markup = _GROUP_ID.sub("<g", markup[markup.index("<svg") :])
    for placeholder, variable in _VARIABLES.items():
        markup = markup.replace(placeholder, f"var({variable})")
    label = escape(description, quote=True)
    return Markup(markup.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1))  # noqa: S704 drawn here
