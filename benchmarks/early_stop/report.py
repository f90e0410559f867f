"""Results → JSON and a Markdown page: what early stop saves, alone and with a handoff, and what it changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.early_stop.experiment import ESCALATED, FULL_SHARES, QUANTILES
from benchmarks.handoff.experiment import LARGE_TOKEN, ROUNDS
from benchmarks.paper.tables import between, percent, signed, table
from benchmarks.results_json import receipt, write_report


def write(results: dict[str, Any], made: dict[str, Any], folder: Path) -> None:
    """Write ``results.json`` and ``README.md``.

    Parameters
    ----------
    results : dict
        As :func:`benchmarks.early_stop.experiment.run` returns them.
    made : dict
        How the results came about: command, seed, machine, day and the like.
    folder : Path
    """
    write_report(folder, results, made, _page)


def _page(results: dict[str, Any], made: dict[str, Any]) -> str:
    rows = results["rows"]
    parts = [
        "# Early stop: no more of an answer that cannot be kept",
        receipt(made),
        f"""The demo's two models, run live and greedily, on {results["queries"]:,} clean queries. The threshold
({results["threshold"]:.4f}; {percent(ESCALATED)} escalated where it was set, {percent(results["escalated"], 1)} here)
and the lengths that are expected come from the other half of the recorded queries. Costs count generated tokens, a
large one at {LARGE_TOKEN} small ones, relative to today's: {results["cost"]:.1f} small tokens a query. micro-F1 of
what is served today is {results["micro_f1"]:.4f}. In brackets: 95 % intervals of a paired bootstrap over queries
({ROUNDS:,} rounds).""",
        "## What is stopped",
        _stops(rows),
        "## Cost and quality",
        _costs(rows),
        _NOTES,
    ]
    return "\n\n".join(parts) + "\n"


def _stops(rows: list[dict[str, Any]]) -> str:
    head = ("length quantile", "tokens", "calls stopped", "their tokens spared", "of evenly", "escalated needlessly")
    first = [next(row for row in rows if row.get("quantile") == quantile) for quantile in QUANTILES]
    return table(
        head,
        [
            [
                f"{row['quantile']:g}",
                str(row["longest"]),
                percent(row["stopped"], 1),
                percent(row["tokens_spared"], 1),
                f"{row['of_even']:.2f}",
                percent(row["needless"], 2),
            ]
            for row in first
        ],
    )


def _costs(rows: list[dict[str, Any]]) -> str:
    head = ("early stop", "full share", "handoff", "cost", "change of micro-F1")
    return table(
        head,
        [
            [
                f"quantile {row['quantile']:g}" if "quantile" in row else "none",
                f"{row['full_share']:g}" if "quantile" in row else "–",
                row["handoff"],
                f"{row['cost']:.3f} {between(row['cost_interval'], 3)}",
                f"{signed(row['micro_f1_change'], 4)} {between(row['micro_f1_change_interval'], 4)}",
            ]
            for row in rows
        ],
    )


_NOTES = f"""*Calls stopped* and what follows it are of a full share of 0; a full share of {FULL_SHARES[-1]:g} stops
{percent(1.0 - FULL_SHARES[-1])} of these. *Of evenly*: what is generated of stopped answers, over what it would be if
their doubt came evenly over their tokens: it comes early. *Escalated needlessly*: answers that would have ended below
the threshold, since they were longer than expected; their large answers are in cost and micro-F1. With a handoff, what
is handed over of a query that runs in full is cut where its call would have been stopped. Reading is not priced, nor is
the connection that every stopped call costs."""
