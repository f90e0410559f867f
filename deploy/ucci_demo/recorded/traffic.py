"""Recorded traffic of the two demo models: queries, gold entities and what both models answered.

Texts and gold lie in a compressed JSONL, numbers in a compressed NumPy archive; row by row they are the same queries.
``PROVENANCE.md`` says what made both files. A third one holds what the large model answers to the offline queries
when the small one hands over to it; ``python -m research.handoff.offline`` makes it.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

HANDED_OVER = Path(__file__).parent / "handed_over.npz"
#: The first clean queries: the offline calibration set, which no stream shows.
OFFLINE_EXAMPLES = 4_000
#: What is packed of the large model's answers behind a handoff.
HANDED_OVER_COLUMNS = ("true_positives", "predicted", "exact", "valid", "tokens")


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """One model's answer, reduced to counts and token statistics."""

    #: (field, value) pairs against the gold ones.
    true_positives: int
    predicted: int
    #: All fields right.
    exact: bool
    #: The text is one JSON object.
    valid: bool
    #: End of sequence included.
    tokens: int
    #: u = 1 - mean(p1 - p2); None when the answer is not valid.
    uncertainty: float | None
    #: Rival signals, from the same token probabilities.
    entropy: float
    max_probability: float
    min_margin: float
    negative_log_likelihood: float


@dataclass(frozen=True, slots=True)
class RecordedQuery:
    """One query with its gold entities and both answers."""

    text: str
    #: ``none``, ``typos`` or ``new_names``.
    shift: str

    gold: dict[str, str | None]
    gold_count: int
    #: Both models gave equal entities.
    agree: bool
    small: RecordedAnswer
    large: RecordedAnswer


@cache
def load_traffic() -> tuple[RecordedQuery, ...]:
    """Return all recorded queries, in the order in which they were recorded."""
    with np.load(HANDED_OVER.with_name("traffic.npz")) as packed:
        columns = {name: packed[name].tolist() for name in packed.files}
    with gzip.open(HANDED_OVER.with_name("traffic.jsonl.gz"), "rt", encoding="utf-8") as lines:
        texts = [json.loads(line) for line in lines]
    found = []
    for row, (text, shift, gold) in enumerate(texts):
        both = {role: _answer(columns, role, row) for role in ("small", "large")}
        found.append(RecordedQuery(text, shift, gold, columns["gold_count"][row], columns["agree"][row], **both))
    return tuple(found)


def with_handoff(offline: Sequence[RecordedQuery]) -> list[RecordedQuery]:
    """Return the offline queries with what the large model answers to them where the small one hands over.

    What is handed over is all before the small model's first token of a margin below .9.
    """
    with np.load(HANDED_OVER) as packed:
        columns = {name: packed[name].tolist() for name in packed.files}
    found = []
    for row, query in enumerate(offline):
        counts = {name: columns[name][row] for name in HANDED_OVER_COLUMNS}
        found.append(replace(query, agree=columns["agree"][row], large=replace(query.large, **counts)))
    return found


def _answer(columns: dict[str, list[Any]], role: str, row: int) -> RecordedAnswer:
    values = {field.name: columns[f"{role}_{field.name}"][row] for field in fields(RecordedAnswer)}
    return RecordedAnswer(**values | ({} if values["valid"] else {"uncertainty": None}))
