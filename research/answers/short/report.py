"""Rows of the judge of short streams → ``rows.json`` and a page of tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from research.answers.experiment import AIM, figures_of
from research.answers.policies import ENTRIES, HINDSIGHT
from research.answers.pool import KINDS
from research.answers.report import Summary, plus_minus, title_of, write_rows
from research.answers.scoring import averaged
from research.answers.short.coverage import LOOK_EVERY
from research.answers.short.scoring import BLOCK, STRETCHES
from research.answers.short.streams import MEAN_DELAY, NAMED, NAMED_OFFLINE
from research.paper.tables import NONE, percent, signed, table
from research.recorded.scoring import TOLERANCE
from research.results_json import receipt

TITLES = {
    "typos": "Typos in 25 % of the photo queries",
    "new_names": "New names in 10 % of the photo queries",
    "drawn_photo": "Drawn drifts, photo",
    "drawn_listings": "Drawn drifts, listings",
}
_STRETCHES = {"clean": "clean", "drifted": "after the change", "back": "way back"}
_COLUMNS = {
    f"{stretch}_{figure}": f"{_STRETCHES[stretch]}, {title}"
    for stretch in STRETCHES
    for figure, title in (("on_target", "on target"), ("cost", "cost"))
}

_WITHOUT_LABELS = ("static", "fixed_rate", HINDSIGHT)
_COVERAGE = f"""The estimate's error: at every {LOOK_EVERY:,}th query the service is asked what it expects at the \
threshold in force. *Error* is the expected micro-F1 less the true one, in points; *deviation* its standard deviation \
over streams at the same place; *claimed* the standard error that the estimate has. Where the claim is true, error is \
near zero and deviation is like what is claimed. Drawn streams have different drifts: their deviation also holds how \
the error differs from drift to drift."""


def write(results: dict[str, Any], made: dict[str, Any], folder: Path) -> None:
    """Write ``rows.json`` and ``README.md``."""
    write_rows(results, made, folder, page(results, made))


def page(results: dict[str, Any], made: dict[str, Any]) -> str:
    """Return the page."""
    parts = ["# The judge of short streams", receipt(made), _introduction(results)]
    for name in results["chosen"]:
        parts += [f"## {TITLES[name]}", _by_policy(results, name)]
        if name not in NAMED:
            parts += ["On target after the change, by kind of drift:", _by_kind(results, name)]
        if any(row["stream"] == name for row in results["coverage"]):
            parts += ["The estimate's error, by share of labels:", _coverage(results, name)]
    parts += ["## The static calibration by margin", "Share of blocks on target and cost after the change."]
    parts += [_margins(results), "## The drawn streams", _streams(results)]
    return "\n\n".join(parts) + "\n"


def labels_of(results: dict[str, Any]) -> list[float]:
    """Return the shares of labels in the rows, the largest first."""
    return sorted({row["labels"] for row in results["rows"]}, reverse=True)


def summaries(results: dict[str, Any], name: str, share: float) -> dict[str, Summary]:
    """Return each policy's figures over the streams of a name, at one share of labels."""
    rows = [row for row in results["rows"] if row["stream"] == name and row["labels"] == share]
    policies = [policy for policy in (*ENTRIES, HINDSIGHT) if any(row["policy"] == policy for row in rows)]
    return {policy: averaged([figures_of(row) for row in rows if row["policy"] == policy]) for policy in policies}


def _introduction(results: dict[str, Any]) -> str:
    queries = f"{results['queries']:,}"
    kinds = ", ".join(KINDS[results["half"]])
    purpose = "that methods are tuned on" if results["half"] == "tuning" else "that no constant was chosen on"
    return f"""How soon is a policy on target after a change? A stream has {queries} clean queries, then {queries} \
under one drift. Two drifts are named and come from the demo's recordings, with {NAMED_OFFLINE:,} offline labels. The \
others are drawn per seed among those under which the target is in reach, and {queries} clean queries follow them. \
Kinds {purpose}: {kinds}. No offline query comes in the stream that it was drawn for. Labels come after \
{MEAN_DELAY:,.0f} queries on average.

On target is a block of {BLOCK} queries whose expected micro-F1 (over all draws from the recordings) is at least the \
target less {TOLERANCE}. Costs are by calls, over those of the cheapest threshold of each phase, known beforehand; \
below zero, a policy escalates too little. *Never* counts streams without a block on target after the change. \
*Labels* are shares of the queries. ± is half of the 95 % interval over streams.

The service's `target.safety` is {results["safety"]:g}. The other policies are those of the long judge \
(`python -m research.answers`). The static calibration's best margin is the cheapest that holds {AIM:.0%} of the \
blocks after the change in these very streams, or else the one that holds most.

{_COVERAGE}"""


def _by_policy(results: dict[str, Any], name: str) -> str:
    by_share = {share: summaries(results, name, share) for share in labels_of(results)}
    figures_seen = {figure for by_policy in by_share.values() for summary in by_policy.values() for figure in summary}
    columns = {column: title for column, title in _COLUMNS.items() if column in figures_seen}
    rows = []
    for policy, share, names in _lines(results, name):
        summary = by_share[share][policy]
        never = [row["never"] for row in _rows_of(results, name, share, policy)]
        figures = [plus_minus(summary, column) for column in columns]
        rows.append([*names, *figures, f"{sum(never):.0f} of {len(never)}"])
    return table(("policy", "labels", *columns.values(), "never"), rows)


def _by_kind(results: dict[str, Any], name: str) -> str:
    seeds_by_kind: dict[str, list[int]] = {}
    for stream in results["streams"]:
        if stream["stream"] == name:
            seeds_by_kind.setdefault(stream["kind"], []).append(stream["seed"])
    lines = []
    for policy, share, names in _lines(results, name):
        by_seed = {row["seed"]: row["drifted_on_target"] for row in _rows_of(results, name, share, policy)}
        held = [[by_seed[seed] for seed in seeds] for seeds in seeds_by_kind.values()]
        lines.append([*names, *(percent(sum(some) / len(some)) for some in held)])
    header = [f"{kind} ({len(seeds)})" for kind, seeds in seeds_by_kind.items()]
    return table(("policy", "labels", *header), lines)


def _lines(results: dict[str, Any], name: str) -> list[tuple[str, float, list[str]]]:
    """Return policy, share of labels and the two as texts for each line; one line for a policy that asks for none."""
    shares = labels_of(results)
    lines: list[tuple[str, float, list[str]]] = []
    for policy in summaries(results, name, shares[0]):
        title = title_of(policy, results["chosen"][name])
        if policy in _WITHOUT_LABELS:
            lines.append((policy, shares[0], [title, NONE]))
        else:
            lines += [(policy, share, [title, percent(share)]) for share in shares]
    return lines


def _rows_of(results: dict[str, Any], name: str, share: float, policy: str) -> list[dict[str, Any]]:
    asked = (name, share, policy)
    return [row for row in results["rows"] if (row["stream"], row["labels"], row["policy"]) == asked]


def _coverage(results: dict[str, Any], name: str) -> str:
    rows = [row for row in results["coverage"] if row["stream"] == name]
    shares = sorted({row["labels"] for row in rows}, reverse=True)
    header = [
        "segment",
        *(f"{percent(share)}: {what}" for share in shares for what in ("error", "deviation", "claimed")),
    ]
    by_cell = {(row["segment"], row["labels"]): row for row in rows}
    body = [
        [segment, *(text for share in shares for text in _cell(by_cell[segment, share]))]
        for segment in dict.fromkeys(row["segment"] for row in rows)
    ]
    return table(header, body)


def _cell(row: dict[str, Any]) -> list[str]:
    deviation = row["deviation"]
    return [
        signed(100 * row["error"], 2),
        NONE if deviation is None else f"{100 * deviation:.2f}",
        f"{100 * row['claimed']:.2f}",
    ]


def _margins(results: dict[str, Any]) -> str:
    names = list(results["chosen"])
    by_cell = {(row["margin"], row["stream"]): row for row in results["margins"]}
    rows = [
        [
            f"{100 * margin:.2f}",
            *(
                percent(by_cell[margin, name][figure], 1)
                for name in names
                for figure in ("drifted_on_target", "drifted_cost")
            ),
        ]
        for margin in dict.fromkeys(row["margin"] for row in results["margins"])
    ]
    return table(("margin, points", *(f"{name}: {what}" for name in names for what in ("on target", "cost"))), rows)


def _streams(results: dict[str, Any]) -> str:
    columns = ("pair", "seed", "offline", "drift")
    drawn = [stream for stream in results["streams"] if stream["stream"] not in NAMED]
    rows = [[str(stream[column]) for column in columns] for stream in drawn]
    return table(("pair", "seed", "offline labels", "drift"), rows)
