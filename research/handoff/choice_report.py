"""Results → JSON and a Markdown page: what choosing the margin would be worth."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from research.paper.tables import percent, percents, table
from research.results_json import receipt, write_report

_NONE = "–"


def write(results: dict[str, Any], made: dict[str, Any], folder: Path) -> None:
    """Write ``results.json`` and ``README.md``.

    ``results``: as :func:`research.handoff.choice.run` returns them. ``made``: how the results came about: command,
    machine, day and the like.
    """
    write_report(folder, results, made, _page)


def _page(results: dict[str, Any], made: dict[str, Any]) -> str:
    texts = ", ".join(f"{count:,} {name}" for name, count in results["texts"].items())
    parts = [
        "# Choosing the margin of a handoff",
        receipt(made),
        _INTRODUCTION.format(texts=texts, rounds=results["rounds"]),
        *(text for mix in results["mixes"] for text in _mix(mix, results)),
    ]
    return "\n\n".join(parts) + "\n"


def _mix(mix: Mapping[str, Any], results: Mapping[str, Any]) -> list[str]:
    parts = [f"## {mix['mix'].capitalize()}", _margins(mix["margins"]), _choices(mix["choices"])]
    if mix["streams"]:
        parts += [_STREAMS.format(mix=mix["mix"], **results), _streams(mix["streams"])]
    return parts


def _over(row: Mapping[str, Any]) -> str:
    """Return by how much something is dearer than the fixed margin, with its interval where it has one."""
    value = percent(row["over_fixed"], 2)
    within = row.get("over_fixed_interval")
    return value if within is None else f"{value} {percents(within, 2)}"


def _margins(rows: list[dict[str, Any]]) -> str:
    head = ("handoff", "granularity", "escalated", "micro-F1 lost on escalated", "cost over `0.9`")
    return table(
        head,
        [
            [
                f"`{row['handoff']}`",
                row["granularity"],
                percent(row["escalated"], 1) + ("" if row["met"] else " (missed)"),
                f"{row['loss']:.4f}".replace("-", "−"),
                _over(row),
            ]
            for row in rows
        ],
    )


def _choices(rows: list[dict[str, Any]]) -> str:
    head = ("choice", "granularity", "cost over `0.9`", "chosen")
    return table(head, [[row["choice"], row["granularity"], _over(row), _spent(row["chosen"])] for row in rows])


def _spent(shares: Mapping[str, float]) -> str:
    """Return a share for each margin that has one."""
    found = [f"{name.partition('@')[2] or name}: {percent(share)}" for name, share in shares.items() if share >= 0.005]
    return ", ".join(found) or _NONE


def _streams(rows: list[dict[str, Any]]) -> str:
    head = ("rule", "granularity", "cost over `0.9`", "beyond the limit", "steps", "first after", "margins")
    return table(
        head,
        [
            [
                row["rule"],
                row["granularity"],
                _over(row),
                percent(row["too_lossy"]),
                f"{row['steps']:.1f}" if "steps" in row else _NONE,
                _NONE if row.get("first_step") is None else f"{row['first_step']:,.0f}",
                _spent(row.get("spent", {})),
            ]
            for row in rows
        ],
    )


_INTRODUCTION = """The demo's two models, recorded under every margin (`python -m research.handoff.pool`: {texts}
queries, those in upper case other clean ones). The target is a micro-F1 of .91. Each handoff is given the cheapest
threshold that meets it, at once and without labels, so that only the margin is left to choose; what a service would pay
besides, above all labels that count no more after each change of the margin, is not counted. Cost is that of generated
tokens of both models, a large one at 3.02 small ones, over the cost of a fixed margin of .9 of the same granularity. In
brackets: 95 % of {rounds:,} bootstrap resamples of the queries, the same for all, or of the streams. *In hindsight* is
the cheapest margin on the queries themselves on which it is scored, which flatters it; *learned* the cheapest on a
labelled sample as large as the pool, scored on the queries outside of it."""

_STREAMS = """Streams of {queries:,} queries, {seeds} of each kind: clean texts, from the middle on {mix}. A rule steps
from .9 by what the guard shows, all of whose queries are labelled: bolder below half of the .002 that a margin may
cost, more cautious above .002. *Bounds* waits until the guard's confidence sequence lies there, *estimates* only for an
estimate. *Beyond the limit*: escalated queries that were served under a margin whose true loss is above .002. *First
after*: median of the queries before the first step; – where most streams had none."""
