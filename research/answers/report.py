"""Rows of the judge → ``rows.json`` and a page of tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from research.answers.experiment import figures_of
from research.answers.pairs import PAIRS
from research.answers.policies import ENTRIES, HINDSIGHT
from research.answers.pool import KINDS, load_pool
from research.answers.scoring import summed_up
from research.answers.shifts import CLEAN
from research.paper.tables import table
from research.recorded.stream import Outcomes
from research.results_json import receipt, rounded

_MANY = 10
Summary = dict[str, tuple[float, float | None]]
_INTRODUCTION = """Pairs of real (tiny) models answered texts under twelve kinds of drift, each in graded sizes; \
`python -m research.answers record` made the pool. A stream of one pair has clean phases of 4,000 to 30,000 queries \
and drifts between them: of different sizes, one out of reach of the target even for the large model, one met twice. \
The offline labels (1,000, 2,000 or 4,000) are drawn per stream and do not come in it again. Pairs take turns by seed.

On target is a block of 2,000 queries whose expected micro-F1 (over all draws from the pool) is at least the target \
less .005; out of reach, at least what the best threshold reaches. Costs are by calls, over those of the cheapest \
threshold of each phase, known beforehand. The way back is the first 10,000 queries of each clean phase after a drift. \
± is half of the 95 % interval over streams, the draw of the offline labels in it."""


def write(results: dict[str, Any], made: dict[str, Any], folder: Path) -> None:
    """Write ``rows.json`` and ``README.md``."""
    write_rows(results, made, folder, page(results, made))


def write_rows(results: dict[str, Any], made: dict[str, Any], folder: Path, text: str) -> None:
    """Write results as ``rows.json``, and the text of their page as ``README.md``."""
    folder.mkdir(parents=True, exist_ok=True)
    document = json.dumps({"made": made, **rounded(results)}, indent=1)
    (folder / "rows.json").write_text(document + "\n", encoding="utf-8")
    (folder / "README.md").write_text(text, encoding="utf-8")


def page(results: dict[str, Any], made: dict[str, Any]) -> str:
    """Return the page."""
    shares = sorted({row["labels"] for row in results["rows"]}, reverse=True)
    parts = ["# The judge of real answers", receipt(made), _INTRODUCTION, _of_half(results)]
    for share in shares:
        found = summaries(results, share)
        parts += [
            f"## {share:.0%} of the labels",
            _overall(found, results),
            "Share of blocks on target by kind of drift:",
        ]
        parts += [_by_kind(found, results)]
    margins = [[f"{100 * row['margin']:.2f}", *map(_share, list(row.values())[1:])] for row in results["margins"]]
    header = ("margin, points", "on target", "regret", "way back on target", "way back regret")
    parts += ["## The static calibration by margin", table(header, margins)]
    streams = [
        [one["seed"], one["pair"], one["offline"], one["queries"], ", ".join(one["drifts"])]
        for one in results["streams"]
    ]
    parts += ["## The streams", table(("seed", "pair", "offline labels", "queries", "drifts"), _texts(streams))]
    parts += ["## The pool", "micro-F1 of both models, and how often they agree.", _pool()]
    return "\n\n".join(parts) + "\n"


def summaries(results: dict[str, Any], share: float) -> dict[str, Summary]:
    """Return each policy's figures over all streams, at one share of the labels."""
    rows = [row for row in results["rows"] if row["labels"] == share]
    names = [name for name in (*ENTRIES, HINDSIGHT) if any(row["policy"] == name for row in rows)]
    return {name: summed_up([figures_of(row) for row in rows if row["policy"] == name]) for name in names}


def _of_half(results: dict[str, Any]) -> str:
    half = results["half"]
    purpose = "Kinds that methods are tuned on" if half == "tuning" else "Kinds that no constant was chosen on"
    targets = " and ".join(f"{pair.target} ({name})" for name, pair in PAIRS.items() if name in load_pool())
    shorter = "" if results["scale"] == 1.0 else f" Lengths of phases are {results['scale']} of those, 4,000 at least."
    few = (
        f" With {len(results['streams'])} streams a first look, no verdict." if len(results["streams"]) < _MANY else ""
    )
    return f"{purpose}: {', '.join(KINDS[half])}. Target: {targets}.{shorter}{few}"


_COLUMNS = {
    "on_target": "blocks on target",
    "regret": "cost over the oracle",
    "worst_kind": "worst kind",
    "regret_in_reach": "cost, target in reach",
    "beyond_regret": "cost, out of reach",
    "back_on_target": "way back on target",
    "back_regret": "way back, cost",
}


def _overall(found: dict[str, Summary], results: dict[str, Any]) -> str:
    rows = [
        [title_of(name, results["margin"]), *(plus_minus(summary, column) for column in _COLUMNS)]
        for name, summary in found.items()
    ]
    return table(("policy", *_COLUMNS.values()), rows)


def _by_kind(found: dict[str, Summary], results: dict[str, Any]) -> str:
    kinds = [f"kind:{kind}" for kind in (CLEAN, *KINDS[results["half"]])]
    kinds = [kind for kind in kinds if any(kind in summary for summary in found.values())]
    rows = [
        [title_of(name, results["margin"]), *(plus_minus(summary, kind) for kind in kinds)]
        for name, summary in found.items()
    ]
    return table(("policy", *(kind.partition(":")[2] for kind in kinds)), rows)


def title_of(policy: str, margin: float) -> str:
    """Return a policy's name in tables; ``margin`` is the static calibration's best one in hindsight."""
    if policy == HINDSIGHT:
        return f"Static, margin {100 * margin:.2f} points (best in hindsight)"
    return ENTRIES[policy].title


def plus_minus(summary: Summary, column: str) -> str:
    """Return a figure as a percentage, with half its interval where there is one; nothing where it is not known."""
    if column not in summary:
        return ""
    mean, half = summary[column]
    return _share(mean) if half is None else f"{_share(mean)} ± {100 * half:.1f}"


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _texts(rows: list[list[Any]]) -> list[list[str]]:
    return [[str(one) for one in row] for row in rows]


def _pool() -> str:
    pool = load_pool()
    names = dict.fromkeys(shift for answers in pool.values() for shift in answers.by_shift)
    header = ("kind/size", *(f"{pair}: {what}" for pair in pool for what in ("queries", "small", "large", "agree")))
    rows = [
        [name, *(text for answers in pool.values() for text in _reach(answers.by_shift.get(name)))]
        for name in sorted(names, key=lambda name: (name.partition("/")[0] != CLEAN, name))
    ]
    return table(header, rows)


def _reach(outcomes: Outcomes | None) -> list[str]:
    if outcomes is None:
        return [""] * 4
    small, large = (
        2 * hits.sum() / (named + outcomes.gold).sum()
        for hits, named in (
            (outcomes.small_hits, outcomes.small_named),
            (outcomes.large_hits, outcomes.large_named),
        )
    )
    return [str(len(outcomes)), f"{small:.3f}", f"{large:.3f}", f"{np.mean(outcomes.agree):.2f}"]
