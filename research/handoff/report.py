"""Results → JSON and a Markdown page: what handing over saves, what it costs, and how often it changes the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from research.handoff.experiment import ESCALATED, LARGE_TOKEN, ROUNDS
from research.paper.tables import between, percent, percents, signed, table
from research.results_json import receipt, write_report


def write(results: dict[str, Any], made: dict[str, Any], folder: Path) -> None:
    """Write ``results.json`` and ``README.md``.

    ``results``: as :func:`research.handoff.experiment.run` returns them. ``made``: how the results came about: command,
    seed, machine, day and the like.
    """
    write_report(folder, results, made, _page)


def _page(results: dict[str, Any], made: dict[str, Any]) -> str:
    parts = [
        "# Handoff: the large model goes on from the small one",
        receipt(made),
        f"""The demo's two models, run live and greedily, on queries whose u lies above {results["threshold"]:.4f}, so
that {percent(ESCALATED)} of clean texts escalate. The large model answers each query alone, and going on from the small
model's text up to its first token with a margin below the cut: `field` hands over whole fields, `token` all of it. In
brackets: 95 % intervals of a paired bootstrap over queries ({ROUNDS:,} rounds).""",
        *(text for part in results["parts"] for text in _part(part)),
        _NOTES,
    ]
    return "\n\n".join(parts) + "\n"


def _part(part: dict[str, Any]) -> tuple[str, str, str]:
    head = (
        "handoff",
        "handed over",
        "large tokens saved",
        "micro-F1",
        "change of micro-F1",
        "same entities",
        "same text",
        "asked again",
        "escalated query costs",
    )
    rows = [
        [
            f"`{row['granularity']}`, {row['margin']:g}",
            percent(row["handed_over"]),
            f"{percent(row['tokens_saved'], 1)} {percents(row['tokens_saved_interval'], 1)}",
            f"{row['micro_f1']:.4f}",
            f"{signed(row['micro_f1_change'], 4)} {between(row['micro_f1_change_interval'], 4)}",
            percent(row["same_entities"], 1),
            percent(row["same_text"], 1),
            percent(row["asked_again"], 1),
            f"{_cost(part, row):.3f}",
        ]
        for row in part["rows"]
    ]
    alone = (
        f"{part['queries']} escalated queries; micro-F1 of the small model {part['small_micro_f1']:.4f}, of the large "
        f"one alone {part['large_micro_f1']:.4f}; tokens of an answer {part['small_tokens']:.1f} and "
        f"{part['large_tokens']:.1f}."
    )
    return f"## {part['texts']}", alone, table(head, rows)


def _cost(part: dict[str, Any], row: dict[str, Any]) -> float:
    """Return the sequential cost of an escalated query by generated tokens, relative to that without handoff."""
    small, large = part["small_tokens"], LARGE_TOKEN * part["large_tokens"]
    return float((small + large * (1.0 - row["tokens_saved"])) / (small + large))


_NOTES = f"""*Escalated query costs*: both calls by generated tokens, a large one at {LARGE_TOKEN} small ones, relative
to the same queries without handoff; tokens of answers that had to be asked again are in it. What is handed over is read
and not generated; reading is not priced here. Nulls and the scaffolding of the JSON are most of what is handed over, so
that other workloads will differ, and a larger pair of models too."""
