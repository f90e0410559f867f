"""``ucci-stream what-moved``: samples results from before and after a time, and says what differs."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from pydantic_core import to_json
from rich.console import Console

from recalibrator.movement import LEAST_QUERIES, NUMBERS, movements
from schemas.draws import uniform
from schemas.errors import DecodeError, UcciError
from schemas.event import rfc3339
from schemas.routed import RoutedEvent
from schemas.settings import Settings
from schemas.topics import RESULTS
from ucci_runtime.broker.records import Record
from ucci_stream.operate.kafka_scan import records_since
from ucci_stream.topics.admin import broker_failures

_MILLISECONDS = 1_000
_DRAW = "what moved"
_LEAST_CONFIDENCE = 0.5


class TooFewQueries(UcciError):
    """A side has too few results to be compared."""

    exit_code = 1


def what_moved(settings: Settings, workload: str, since: datetime, until: datetime, most: int) -> dict[str, Any]:
    """Return what differs between the results from a time on and those of as long a span before; blocks.

    Parameters
    ----------
    since, until : datetime
        By the time at which results were committed.
    most : int
        Results that are compared on either side, drawn by a hash of the query's id.

    Raises
    ------
    TooFewQueries, NotRead, BrokerUnreachable, AccessDenied
    """
    start = since - (until - since)
    with broker_failures(settings):
        records = records_since(settings, RESULTS.name(settings.topics.prefix), start, "what-moved")
        before, after = _Sample(most), _Sample(most)
        wanted = b'"workload":' + to_json(workload)
        for record in records:
            # Parsing is most of the work: only what was drawn is parsed.
            if record.timestamp_ms < until.timestamp() * _MILLISECONDS and wanted in (record.value or b""):
                (before if record.timestamp_ms < since.timestamp() * _MILLISECONDS else after).offer(record)
    sides = before.results(workload), after.results(workload)
    if min(map(len, sides)) < LEAST_QUERIES:
        raise TooFewQueries(
            f"{workload}: {len(sides[0])} results from {rfc3339(start)} on, and {len(sides[1])} from {rfc3339(since)} "
            f"to {rfc3339(until)}; {LEAST_QUERIES} of each are needed: give another --since"
        )
    return {
        "workload": workload,
        "before": {"since": rfc3339(start), "results": before.seen, "compared": len(sides[0])},
        "after": {"since": rfc3339(since), "results": after.seen, "compared": len(sides[1])},
        "until": rfc3339(until),
        "moved": [asdict(one) for one in movements(*sides, language_identifier())],
    }


class _Sample:
    """A bounded number of records, those with the least hashes of their keys: any order gives the same."""

    def __init__(self, most: int) -> None:
        self.seen, self._most = 0, most
        self._kept: list[tuple[float, int, Record]] = []

    def offer(self, record: Record) -> None:
        self.seen += 1
        place = -uniform((record.key or b"").decode("utf-8", "replace"), _DRAW)
        push = heapq.heappush if len(self._kept) < self._most else heapq.heappushpop
        push(self._kept, (place, self.seen, record))

    def results(self, workload: str) -> list[RoutedEvent]:
        found = (_decoded(record) for _, _, record in self._kept)
        return sorted(
            (one for one in found if one is not None and one.workload == workload), key=lambda one: one.routed_at
        )


def _decoded(record: Record) -> RoutedEvent | None:
    """Return a record's event, or None where a release after this one has written it, or it is malformed."""
    try:
        return None if record.value is None else RoutedEvent.from_record(record.value)
    except DecodeError:
        return None


def language_identifier() -> Callable[[str], str]:
    """Return what names a text's language, ``und`` where that is uncertain; loading its model takes half a second."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    known = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True, min_confidence=_LEAST_CONFIDENCE)
    return lambda text: str(known.classify(text)[0])


def show_movements(found: Mapping[str, Any], console: Console, *, as_json: bool) -> None:
    """Print what moved, for people or for programs."""
    if as_json:
        sys.stdout.write(to_json(found).decode() + "\n")
        return
    for line in _lines(found):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _lines(found: Mapping[str, Any]) -> list[str]:
    before, after = found["before"], found["after"]
    head = (
        f"{found['workload']}: {before['results']} results from {before['since']}, {after['results']} from "
        f"{after['since']} to {found['until']}; {before['compared']} and {after['compared']} compared"
    )
    if not found["moved"]:
        return [head, "Nothing moved."]
    lines = [head]
    for one in found["moved"]:
        changes = ", ".join(
            f"{name} {_figure(former, name)} → {_figure(one['after'][name], name)}"
            for name, former in one["before"].items()
        )
        with_what = "" if one["follows"] is None else f" (with {one['follows']})"
        examples = f"; such as {', '.join(one['examples'])}" if one["examples"] else ""
        lines.append(f"{one['effect']:4.0%}  {one['what']}{with_what}: {changes}{examples}")
    return lines


def _figure(value: float, name: str) -> str:
    return f"{value:.3g}" if name in NUMBERS else f"{value:.0%}"
