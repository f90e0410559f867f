"""The picture of a demo run: micro-F1 and escalation over the stream, versions, drift and kill marked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ucci_stream.demo.scenario import PlannedQuery, Scenario
from ucci_stream.demo.summary import Observations, Row, Terms, served_row, static_row
from ucci_stream.offline.pictures import GOAL, INK, MAIN, MUTED, over_time, write

_WINDOW = 800

Counts = NDArray[np.float64]


def plot_run(stream: Sequence[PlannedQuery], seen: Observations, scenario: Scenario, terms: Terms, path: Path) -> Path:
    """Draw the run and write it as PNG or SVG, by the path's ending."""
    figure, top, bottom = over_time((10.0, 6.2))
    results = ((query, seen.results.get(query.query_id)) for query in stream)
    served = _counts([None if one is None else served_row(query, one.routed) for query, one in results])
    static = _counts([static_row(query, terms.static_thresholds[0.0], terms.costs) for query in stream])
    index = np.arange(len(stream))
    top.plot(index, _rolling_f1(static[:, :3]), color=GOAL, lw=1.4, label="static calibration")
    bottom.plot(index, _rolling_mean(static[:, 3]), color=GOAL, lw=1.4)
    top.plot(index, _rolling_f1(served[:, :3]), color=MAIN, lw=2.0, label="this service")
    bottom.plot(index, _rolling_mean(served[:, 3]), color=MAIN, lw=2.0)
    top.axhline(terms.target, color=MUTED, lw=1.0, ls="--", label=f"target {terms.target}")
    top.set_ylabel(f"micro-F1, last {_WINDOW} queries")
    bottom.set_xlabel("query")
    bottom.set_ylim(bottom=0.0)
    _mark(top, bottom, stream, seen, scenario)
    top.legend(loc="lower left", frameon=False)
    top.margins(x=0.01)
    top.set_title("Traffic changes at each dotted line; each tick is a calibration version", loc="left")
    return write(figure, path)


def _mark(top, bottom, stream, seen, scenario) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    """Mark the drift, the kill and the versions; matplotlib's axes carry no useful types."""
    order = np.array(sorted(result.seen_s for result in seen.results.values()))
    for axes in (top, bottom):
        for start in scenario.starts[1:]:
            axes.axvline(start, color=INK, lw=1.0, ls=":")
    at = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
    for start, one in zip(scenario.starts, scenario.stretches, strict=True):
        top.annotate(one.title, (start, 1.0), xytext=(6, -12), color=INK, **at)
    if seen.killed_s is not None:
        killed = int(np.searchsorted(order, seen.killed_s))
        for axes in (top, bottom):
            axes.axvline(killed, color=GOAL, lw=1.0, ls=(0, (1, 3)))
        top.annotate("router killed", (killed, 0.0), xytext=(6, 6), color=GOAL, **at)
    for version in seen.versions:
        came = int(np.searchsorted(order, version.published_s))
        bottom.axvline(min(came, len(stream) - 1), ymax=0.08, color=INK, lw=1.2)


def _counts(rows: Sequence[Row | None]) -> Counts:
    """Return pairs right, named and to be found, and whether it escalated: a row a query, 0 where it has no answer."""
    return np.array([(0, 0, 0, 0) if row is None else row[:4] for row in rows], dtype=float)


def _rolling_sum(values: Counts) -> Counts:
    total = np.concatenate((np.zeros((1, *values.shape[1:])), np.cumsum(values, axis=0)))
    last = np.arange(1, len(values) + 1)
    return np.asarray(total[last] - total[np.maximum(0, last - _WINDOW)])


def _rolling_f1(counts: Counts) -> Counts:
    """Return micro-F1 over the last window, NaN while it is less than half full."""
    hits, predicted, gold = _rolling_sum(counts).T
    with np.errstate(invalid="ignore", divide="ignore"):
        score = 2.0 * hits / (predicted + gold)
    score[: _WINDOW // 2] = np.nan
    return np.asarray(score)


def _rolling_mean(values: Counts) -> Counts:
    count = np.minimum(np.arange(1, len(values) + 1), _WINDOW)
    mean = _rolling_sum(values) / count
    mean[: _WINDOW // 2] = np.nan
    return np.asarray(mean)
