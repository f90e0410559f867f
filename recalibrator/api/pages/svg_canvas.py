"""What all plots share: size, type, colours, axes of time, and the way from a figure to markup.

Colours are the page's own CSS variables, so that one drawing serves light and dark.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from html import escape
from threading import Lock
from typing import Any

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

# Placeholders that no plot would use by itself; each becomes a CSS variable of the page.
INK, MUTED, MAIN, GOAL, SECOND, LINE, BAD = (f"#0{n}0{n + 1}0{n + 2}" for n in range(1, 8))
_VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    MAIN: "--main",
    GOAL: "--goal",
    SECOND: "--second",
    LINE: "--line",
    BAD: "--bad",
}
WIDE, SQUARE = (5.2, 2.9), (3.5, 2.75)
"""In inches. At these sizes the type stays readable when a telephone shows a plot at its full width."""

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
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3_600, 86_400
_STEPS_S = (
    *(1, 2, 5, 10, 15, 30),
    *(minutes * _MINUTE_S for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * _HOUR_S for hours in (1, 2, 3, 6, 12)),
    *(days * _DAY_S for days in (1, 2, 7, 14, 28, 91, 182, 364)),
)
_MOST_TICKS = 5
# Style settings are the library's global state, and requests are served by several threads.
_LOCK = Lock()


def goal(target: float | None) -> tuple[float, ...]:
    """Return what an axis must have room for besides the data: the target, where there is one."""
    return () if target is None else (target,)


def drawn(size: tuple[float, float], description: str, draw: Callable[[Sequence[Any]], None], rows: int = 1) -> Markup:
    """Return a drawing as markup.

    Parameters
    ----------
    size : tuple of float
        Width and height, in inches.
    description : str
        For those who do not see it.
    draw : callable
        Draws on the axes that it is given, one for each row, which share the horizontal axis.
    """
    # Several drawings stand in one page: the ids of each are made of its own description.
    with _LOCK, rc_context(_STYLE | {"svg.hashsalt": description}):
        figure = Figure(figsize=size, layout="constrained")
        figure.patch.set_alpha(0.0)
        axes = list(figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0])
        for one in axes:
            one.patch.set_alpha(0.0)
            one.grid(visible=False, axis="x")
        draw(axes)
        return _svg(figure, description)


def time_axis(axes: Any, first: datetime, last: datetime) -> None:
    """Show a stretch of time, in UTC, with at most six round times beside it."""
    span_s = max((last - first).total_seconds(), 1.0)
    step_s = next((step for step in _STEPS_S if span_s / step <= _MOST_TICKS), span_s / _MOST_TICKS)
    begin = math.ceil(first.timestamp() / step_s) * step_s
    ticks = [datetime.fromtimestamp(begin + k * step_s, UTC) for k in range(_MOST_TICKS + 1)]
    shown = [tick for tick in ticks if tick <= last] or [first]
    form = "%H:%M:%S" if step_s < _MINUTE_S else "%H:%M" if step_s < _DAY_S else "%d %b"
    texts = [tick.strftime(form) for tick in shown]
    if step_s < _DAY_S:
        # The day is written once, at its first tick.
        days = [None, *(tick.date() for tick in shown)]
        texts = [
            text if tick.date() == day else f"{text}\n{tick.strftime('%d %b')}"
            for text, tick, day in zip(texts, shown, days, strict=False)
        ]
    axes.set_xticks(shown, texts)
    axes.set_xlim(first, last)


def nothing_yet(width: float, description: str, what: str) -> Markup:
    """Return a low drawing that says what is missing.

    Parameters
    ----------
    width : float
        In inches.
    description, what : str
        What would be drawn, and why it is not.
    """
    return drawn((width, _LOW), description, lambda rows: say_nothing_yet(rows[0], what))


def say_nothing_yet(axes: Any, what: str) -> None:
    """Say what is missing, in place of an empty drawing."""
    axes.spines["bottom"].set_visible(False)
    axes.text(0.5, 0.5, what, transform=axes.transAxes, ha="center", va="center", color=MUTED)
    axes.set_xticks([])
    axes.set_yticks([])


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
