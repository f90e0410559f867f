"""What models are asked about: gold lines, ``{"text": …, "entities": {…}}``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field

from schemas.entities import Entities, spelt_nothings, with_nulls
from schemas.errors import ConfigError, DecodeError
from schemas.event import Event
from schemas.routed import MAX_TEXT_CHARS
from schemas.settings import WorkloadSettings
from ucci_stream.topics.feed import open_lines

_MOST_FAULTS = 20
_ID_CHARS = 24


class GoldLine(Event):
    """One line of the file; other keys are ignored."""

    text: Annotated[str, Field(min_length=1, max_length=MAX_TEXT_CHARS)]
    #: What is right; a field that is left out is null.
    entities: Entities


class GoldQuery(NamedTuple):
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
    named = [(name, query.number) for query in queries for name in query.line.entities if name not in fields]
    first = dict(reversed(named))
    for name, count in Counter(name for name, _ in named).most_common():
        near = get_close_matches(name, fields, n=1)
        hint = f"; is {near[0]} meant?" if near else ""
        yield f"{name}: is no field of the workload, ignored on {count} lines, first on line {first[name]}{hint}"


def with_null_texts(queries: Sequence[GoldQuery], workload: WorkloadSettings) -> tuple[GoldQuery, ...]:
    """Return the lines with null where they hold one of the workload's ``null_texts``."""
    if not workload.nulls:
        return tuple(queries)
    return tuple(
        one._replace(line=one.line.model_copy(update={"entities": with_nulls(one.line.entities, workload.nulls)}))
        for one in queries
    )


def spelt_nulls(queries: Sequence[GoldQuery], workload: WorkloadSettings) -> Iterator[str]:
    """Yield one warning where lines hold texts such as "None", which count as values."""
    found = [
        (query.number, field, text)
        for query in queries
        for field, text in spelt_nothings(query.line.entities, workload.nulls)
    ]
    if found:
        number, field, text = found[0]
        lines = len({line for line, _, _ in found})
        remedy = f"leave the field out, or add the text to workloads.{workload.name}.null_texts"
        yield (
            f"{lines} lines hold a text such as {field} = {text!r}, first on line {number}, which counts as a value: "
            f"if nothing is meant, {remedy}"
        )
