"""What models are asked about: gold lines, ``{"text": …, "entities": {…}}``, or a workload's queries without answers.

All faults of a file of gold lines are named at once, each by line number and field, before any model is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import Annotated

from pydantic import Field

from schemas.entities import Entities
from schemas.errors import ConfigError, DecodeError
from schemas.event import Event, WorkloadName
from schemas.routed import MAX_TEXT_CHARS, QueryEvent
from schemas.settings import Settings
from schemas.topics import QUERIES
from ucci_stream.topics.feed import decoded_lines, open_lines
from ucci_stream.topics.outcomes import latest

_MOST_FAULTS = 20
_ID_CHARS = 24


class GoldLine(Event):
    """One line of the file; other keys are ignored."""

    text: Annotated[str, Field(min_length=1, max_length=MAX_TEXT_CHARS)]
    #: What is right; a field that is left out is null.
    entities: Entities


@dataclass(frozen=True, slots=True)
class GoldQuery:
    """One query with its gold entities."""

    number: int
    #: Made of the text, so that a text counts once, in one file and in several.
    query_id: str

    line: GoldLine


def read_gold(path: Path) -> tuple[GoldQuery, ...]:
    """Read a JSONL file of gold lines; empty lines are passed over.

    Raises ConfigError, naming each bad line, the first twenty of them, or that there is none at all; raises FeedStopped
    when the file cannot be read.
    """
    queries: list[GoldQuery] = []
    faults: list[str] = []
    with open_lines(path) as lines:
        for number, raw in lines:
            if not raw.strip():
                continue
            try:
                line = GoldLine.from_json(raw.strip())
            except DecodeError as error:
                faults.append(f"{path}:{number}: {error}")
                continue
            query_id = f"gold-{sha256(line.text.encode()).hexdigest()[:_ID_CHARS]}"
            queries.append(GoldQuery(number, query_id, line))
    if faults:
        more = [f"{path}: {len(faults) - _MOST_FAULTS} more lines are faulty"] if len(faults) > _MOST_FAULTS else []
        raise ConfigError([*faults[:_MOST_FAULTS], *more])
    if not queries:
        raise ConfigError([f'{path}: holds no line; each must be like {{"text": "…", "entities": {{"field": "…"}}}}'])
    return tuple(queries)


def unknown_fields(queries: Sequence[GoldQuery], fields: Sequence[str]) -> Iterator[str]:
    """Yield a warning for each field that lines name and the workload does not have; such values count nothing."""
    first: dict[str, int] = {}
    times: Counter[str] = Counter()
    for query in queries:
        for name in query.line.entities:
            if name not in fields:
                first.setdefault(name, query.number)
                times[name] += 1
    for name, count in times.most_common():
        near = get_close_matches(name, fields, n=1)
        hint = f"; is {near[0]} meant?" if near else ""
        yield f"{name}: is no field of the workload, ignored on {count} lines, first on line {first[name]}{hint}"


class TextLine(Event):
    """One line of a file: a query, a result, a gold line or whatever else has a text; other keys are ignored."""

    text: Annotated[str, Field(min_length=1, max_length=MAX_TEXT_CHARS)]
    #: Lines of another workload are passed over.
    workload: WorkloadName | None = None


def texts_of_file(path: Path, workload: str) -> list[str]:
    """Return the different texts of a JSONL file, in its order.

    Raises ConfigError when there is none of this workload; raises FeedStopped when the file cannot be read, or naming
    its first bad line.
    """
    lines = (line for _, line in decoded_lines(path, TextLine.from_json))
    found = list(dict.fromkeys(line.text for line in lines if line.workload in (None, workload)))
    if not found:
        raise ConfigError([f'{path}: holds no line of workload {workload}; each must be like {{"text": "…"}}'])
    return found


def latest_texts(settings: Settings, workload: str, most: int) -> list[str]:
    """Return the different texts of a workload that the queries topic ends with.

    ``most``: records of each partition that are looked at. Raises ConfigError when there is none; raises TopicMissing,
    BrokerUnreachable or AccessDenied.
    """
    queries = latest(settings, QUERIES, QueryEvent, most)
    mine = (query for query in queries if (query.workload or settings.workload_of_unnamed) == workload)
    found = list(dict.fromkeys(query.text for query in mine))
    if not found:
        topic = QUERIES.name(settings.topics.prefix)
        raise ConfigError([f"{topic}: holds no query of workload {workload}; give a file of lines with a text"])
    return found
