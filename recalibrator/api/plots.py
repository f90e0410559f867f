"""The page's plots as SVG: points and statuses flow in, markup flows out. No script, no fonts from elsewhere.

Colours are the page's own CSS variables, so that one drawing serves light and dark.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from threading import Lock
from typing import Any

from matplotlib import dates, rc_context
from matplotlib.figure import Figure

from recalibrator.api.view import HistoryPoint
from schemas.status import WorkloadStatus

# Placeholders that no plot would use by itself; each becomes a CSS variable of the page.
_INK, _MUTED, _MAIN, _GOAL, _SECOND = "#010203", "#020304", "#030405", "#040506", "#050607"
_VARIABLES = {_INK: "--ink", _MUTED: "--muted", _MAIN: "--main", _GOAL: "--goal", _SECOND: "--second"}
_WIDE, _SQUARE = (7.2, 2.5), (3.6, 2.5)
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "ucci",
    "font.family": "sans-serif",
    "font.sans-serif": ["system-ui", "sans-serif"],
    "font.size": 9.0,
    "text.color": _INK,
    "axes.edgecolor": _MUTED,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_DATES: Any = dates  # carries no types
# Style settings are the library's global state, and requests are served by several threads.
_LOCK = Lock()


def quality_plot(points: Sequence[HistoryPoint], target: float) -> str:
    """Draw micro-F1 over time with its interval, the target, and where versions changed."""
    known = [(p.at, p.micro_f1) for p in points if p.micro_f1 is not None]
    with _LOCK, rc_context(_STYLE):
        figure, axes = _blank(_WIDE)
        if known:
            times = [at for at, _ in known]
            axes.fill_between(
                times, [f.lower for _, f in known], [f.upper for _, f in known], color=_MAIN, alpha=0.18, lw=0
            )
            axes.plot(times, [f.estimate for _, f in known], color=_MAIN, lw=1.6)
            _mark_versions(axes, points)
            _time_axis(axes)
        else:
            _say_nothing_yet(axes)
        axes.axhline(target, color=_GOAL, lw=1.2, ls="--")
        axes.set_ylabel("micro-F1")
        return _svg(figure, "Estimated micro-F1 over time with its 95 % interval; the dashed line is the target")


def escalation_plot(points: Sequence[HistoryPoint]) -> str:
    """Draw the share of queries that the large model answered, over time."""
    known = [(p.at, p.escalation_rate) for p in points if p.escalation_rate is not None]
    with _LOCK, rc_context(_STYLE):
        figure, axes = _blank(_WIDE)
        if known:
            axes.plot([at for at, _ in known], [rate for _, rate in known], color=_SECOND, lw=1.6)
            _mark_versions(axes, points)
            _time_axis(axes)
        else:
            _say_nothing_yet(axes)
        axes.set_ylim(bottom=0.0)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes.set_ylabel("escalated")
        return _svg(figure, "Share of queries escalated to the large model, over time")


def reliability_plot(status: WorkloadStatus) -> str:
    """Draw predicted against observed error, and how many labels stand behind each bin."""
    bins = status.calibration_error.bins
    with _LOCK, rc_context(_STYLE):
        figure, axes = _blank(_SQUARE)
        axes.plot([0, 1], [0, 1], color=_MUTED, lw=1.0, ls=":")
        if bins:
            largest = max(one.count for one in bins) or 1
            sizes = [12.0 + 120.0 * one.count / largest for one in bins]
            axes.scatter([b.predicted for b in bins], [b.observed for b in bins], s=sizes, color=_MAIN, alpha=0.8, lw=0)
            axes.plot([b.predicted for b in bins], [b.observed for b in bins], color=_MAIN, lw=1.0)
        else:
            _say_nothing_yet(axes)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        axes.set_xlabel("predicted error")
        axes.set_ylabel("observed error")
        return _svg(figure, "Reliability: predicted against observed error; the area of a dot is its number of labels")


def _blank(size: tuple[float, float]) -> tuple[Figure, Any]:
    figure = Figure(figsize=size, layout="constrained")
    figure.patch.set_alpha(0.0)
    axes = figure.add_subplot()
    axes.patch.set_alpha(0.0)
    return figure, axes


def _mark_versions(axes: Any, points: Sequence[HistoryPoint]) -> None:
    last = points[0].version
    for point in points[1:]:
        if point.version != last:
            axes.axvline(point.at, color=_MUTED, lw=0.8, alpha=0.5)
        last = point.version


def _time_axis(axes: Any) -> None:
    locator = _DATES.AutoDateLocator(maxticks=7)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(_DATES.ConciseDateFormatter(locator))
    axes.margins(x=0.01)


def _say_nothing_yet(axes: Any) -> None:
    axes.text(0.5, 0.5, "nothing yet", transform=axes.transAxes, ha="center", va="center", color=_MUTED)


def _svg(figure: Figure, description: str) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    markup = buffer.getvalue()
    markup = markup[markup.index("<svg") :]
    for placeholder, variable in _VARIABLES.items():
        markup = markup.replace(placeholder, f"var({variable})")
    return markup.replace("<svg ", f'<svg role="img" aria-label="{description}" ', 1)
