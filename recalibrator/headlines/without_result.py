"""Labels whose result has not come: when they are worth a headline, and the line that shows them. Pure."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from schemas.status import LabelsWithoutResult, RecalibratorStatus
from schemas.topics import FEEDBACK, RESULTS

#: Labels of the last hour without a result, and their share of all, from which their sender must be wrong. A few stray
#: ids are below; a tool that sends other ids than the queries' loses every label, and is soon above. A label that is
#: younger than a minute is not counted at all: its result may be on its way.
FEWEST = 10
LEAST_SHARE = 0.2

_LONGEST_ID = 64
_SIZES = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))


def unusual_share(waiting: LabelsWithoutResult) -> float | None:
    """Return the share of the last hour's labels without a result where it is worth a headline, else None.

    Examples
    --------
    >>> unusual_share(LabelsWithoutResult(queries=30, last_hour=30, labels_last_hour=120))
    0.25
    >>> unusual_share(LabelsWithoutResult(queries=30, last_hour=9, labels_last_hour=9)) is None
    True
    """
    if waiting.last_hour < FEWEST:
        return None
    share = waiting.last_hour / max(waiting.labels_last_hour, waiting.last_hour)
    return share if share >= LEAST_SHARE else None


def waiting_line(waiting: LabelsWithoutResult | None, now: datetime) -> str:
    """Return how many labels wait for a result and for how long; empty where none does.

    Examples
    --------
    >>> from datetime import UTC
    >>> noon, nine = datetime(2026, 3, 1, 12, tzinfo=UTC), datetime(2026, 3, 1, 9, tzinfo=UTC)
    >>> waiting_line(LabelsWithoutResult(queries=17, oldest_at=nine), noon)
    'Labels of 17 queries wait for a result, the oldest for 3 h'
    """
    if waiting is None or not waiting.queries:
        return ""
    queries = "1 query" if waiting.queries == 1 else f"{waiting.queries:,} queries"
    verb = "waits" if waiting.queries == 1 else "wait"
    labels = "The label of" if waiting.queries == 1 else "Labels of"
    since = "" if waiting.oldest_at is None else lasted((now - waiting.oldest_at).total_seconds())
    age = "" if not since else f", for {since}" if waiting.queries == 1 else f", the oldest for {since}"
    return f"{labels} {queries} {verb} for a result{age}"


def look_up(waiting: LabelsWithoutResult | None) -> str:
    """Return the command that looks one of these labels up, by a real id where a shell and a terminal can bear it.

    Examples
    --------
    >>> look_up(LabelsWithoutResult(queries=2, latest=("Q 17", "Q-16")))
    "ucci-stream explain 'Q 17'"
    >>> look_up(LabelsWithoutResult(queries=1, latest=("-17",)))
    'ucci-stream explain ID'
    """
    ids = () if waiting is None else waiting.latest
    typable = (
        query_id
        for query_id in ids
        if query_id.isprintable() and len(query_id) <= _LONGEST_ID and not query_id.startswith("-")
    )
    return f"ucci-stream explain {shlex.quote(next(typable, 'ID'))}"


def forwarded_line(recalibrators: Iterable[RecalibratorStatus], prefix: str) -> str:
    """Return how many records the join has forwarded to the partitions of their queries; empty where none.

    Examples
    --------
    >>> forwarded_line([], "ucci")
    ''
    """
    counts = Counter[str]()
    for recalibrator in recalibrators:
        counts.update(recalibrator.records_forwarded)
    named = ((FEEDBACK, "label", "labels"), (RESULTS, "result", "results"))
    parts = [
        f"{count:,} {single if count == 1 else several}"
        for topic, single, several in named
        if (count := counts[topic.name(prefix)])
    ]
    if not parts:
        return ""
    fate = "lay in another partition than its query, and the join forwarded it"
    if sum(counts.values()) > 1:
        fate = "lay in other partitions than their queries, and the join forwarded them"
    return f"{' and '.join(parts)} {fate}: nothing to do"


def lasted(seconds: float) -> str:
    """Return a duration in its largest unit of which there are at least two.

    Examples
    --------
    >>> lasted(42.0), lasted(3_700.0), lasted(10_800.0)
    ('42 s', '62 min', '3 h')
    """
    for size, unit in _SIZES:
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0.0):.0f} s"
