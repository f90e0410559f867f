"""A workload's queries, to ask models about: from a file of lines with a text, or the latest of the queries topic."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field

from schemas.errors import ConfigError, DecodeError
from schemas.event import Event, WorkloadName
from schemas.query import MAX_TEXT_CHARS, QueryEvent
from schemas.settings import Settings
from schemas.topics import QUERIES
from ucci_stream.topics.feed import decoded_lines
from ucci_stream.topics.outcomes import follow

_POLL_S = 0.25
_QUIET_S = 1.5


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
    queries = _latest(settings, most)
    mine = (query for query in queries if (query.workload or settings.workload_of_unnamed) == workload)
    found = list(dict.fromkeys(query.text for query in mine))
    if not found:
        topic = QUERIES.name(settings.topics.prefix)
        raise ConfigError([f"{topic}: holds no query of workload {workload}; give a file of lines with a text"])
    return found


def _latest(settings: Settings, most: int) -> Iterator[QueryEvent]:
    with follow(settings, [QUERIES], most) as follower:
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < _QUIET_S:
            for message in follower.messages(_POLL_S):
                quiet_since = time.monotonic()
                try:
                    yield QueryEvent.from_record(message.value() or b"")
                except DecodeError:
                    continue  # a dead letter by now
