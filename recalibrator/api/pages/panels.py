"""What the page's panels hold: what answers the queries and how many come; long lists folded to what differs. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby, islice
from statistics import mode
from typing import NamedTuple, get_args

from recalibrator.api.read_model.dead_letter_log import DeadLetter
from recalibrator.api.read_model.history import HistoryPoint, Served, last_growth
from recalibrator.api.read_model.version_lines import VersionLine, changes
from recalibrator.headlines.facts import SILENT_AFTER
from schemas.command import Action
from schemas.status import (
    DeadLetterStatus,
    ModelHealth,
    RecalibratorStatus,
    WorkloadRouter,
    WorkloadStatus,
    that_answer,
)

#: More that are well are counted.
_MOST_ROUTERS = 3

_TONES = {"probing": "warn", "down": "bad"}


class Chip(NamedTuple):
    """A part of the service: its name, how it is in a few words, and a tone of the page."""

    name: str
    words: str
    tone: str


def deciding(status: WorkloadStatus) -> int | None:
    """Return the version by which most routers decide; the fit's newest where none reports."""
    found = [one.version for one in that_answer(status.routers) if not one.silent and one.version is not None]
    return mode(found) if found else status.calibration_version


def strip(status: WorkloadStatus, recalibrators: Sequence[RecalibratorStatus], now: datetime) -> Iterator[Chip]:
    """Yield the parts that serve a workload."""
    for role in ("small", "large"):
        if seen := [server for name, server in status.servers if name == role]:
            yield _model(role, seen)
    usual = deciding(status)
    routers = [_router(one, usual) for one in status.routers]
    well = [one for one in routers if one.tone == "good"]
    yield from (one for one in routers if one.tone != "good")
    yield from well if len(well) <= _MOST_ROUTERS else [Chip(f"{len(well)} routers", "ready", "good")]
    for one in recalibrators:
        if now - one.updated_at > SILENT_AFTER:
            yield Chip(" + ".join(one.stages), f"silent since {one.updated_at:%H:%M:%S}", "bad")
            continue
        for name, stage in one.stages.items():
            tone = "bad" if not stage.ready else "warn" if stage.trouble else "good"
            yield Chip(name, stage.trouble or ("ready" if stage.ready else "not ready"), tone)


def _model(role: str, seen: Sequence[ModelHealth]) -> Chip:
    """Return a model as the router that sees it worst reports it."""
    states = {one.state for one in seen}
    state = next(one for one in (*reversed(_TONES), "up") if one in states)
    slowest, usual = (max(one.latency_s.get(name, 0.0) for one in seen) for name in ("p99", "p50"))
    speed = f", half within {usual:.2g} s, nearly all within {slowest:.2g} s" if slowest else ""
    if state == "up" and any(one.overloaded for one in seen):
        return Chip(f"{role} model", f"overloaded, {sum(one.queued for one in seen)} calls wait{speed}", "bad")
    if state == "up":
        return Chip(f"{role} model", f"up{speed}", "good")
    why = next((f": {one.reason}" for one in seen if one.state == state and one.reason is not None), "")
    return Chip(f"{role} model", f"{state}{why}", _TONES[state])


def _router(one: WorkloadRouter, usual: int | None) -> Chip:
    name = f"{one.instance_id}{' (gateway)' if one.serves == 'http' else ''}"
    if one.silent:
        return Chip(name, f"silent since {one.updated_at:%H:%M:%S}", "bad")
    elsewhere = "" if one.version == usual else f", by version {'none' if one.version is None else one.version}"
    return Chip(name, f"{'ready' if one.ready else 'not ready'}{elsewhere}", "good" if one.ready else "warn")


#: Over which the rate is taken.
SPAN = timedelta(minutes=5)

_HOUR = timedelta(hours=1)


class Traffic(NamedTuple):
    """Queries a second over :data:`SPAN`, None while unknown; when their count last grew; and answers of the last hour.

    ``degraded`` of ``answered`` were the small model's where the large one was to answer; None while unknown.
    """

    per_second: float | None
    last_at: datetime | None
    degraded: int | None = None
    answered: int | None = None


def traffic(points: Sequence[HistoryPoint], now: datetime) -> Traffic:
    """Return how busy a workload is, from the counts of its statuses."""
    known = [(point.at, point.served) for point in points if point.served is not None]
    if not known:
        return Traffic(None, None)
    since, latest = now - SPAN, known[-1][1]
    start_at, start = _last_before(known, since)
    _, earlier = _last_before(known, now - _HOUR)
    # A status comes when something has changed: where the last one before is old, nothing came in until the span began.
    span_s, grown = (now - max(start_at, since)).total_seconds(), latest.queries - start.queries
    rate = grown / span_s if span_s > 0.0 and grown >= 0 else None
    lately = latest.degraded - earlier.degraded, latest.queries - earlier.queries
    return Traffic(rate, last_growth(points), *(lately if min(lately) >= 0 else (None, None)))


def _last_before(known: Sequence[tuple[datetime, Served]], moment: datetime) -> tuple[datetime, Served]:
    return next(((at, one) for at, one in reversed(known) if at <= moment), known[0])


#: Fewer refits in a row are shown one by one.
LEAST_RUN = 3

SHOWN_OF_RUN, SHOWN_EXAMPLES = 6, 3
_COMMANDED = frozenset(get_args(Action))


class VersionRow(NamedTuple):
    """A line of the versions' table and what it changed: name, value before, value after, by name."""

    line: VersionLine
    changed: Mapping[str, tuple[object, object]]


class VersionGroup(NamedTuple):
    """Some versions in a row, newest first: single ones, or a run of refits."""

    #: Whether they are refits of the fit's own accord, none of which changed the state.
    is_run: bool
    #: Of the group; ``rows`` holds the latest of it.
    size: int
    #: Thresholds on u.
    lowest: float
    highest: float

    since: datetime
    #: Its number, by which the group is known while it grows.
    oldest: int

    rows: Sequence[VersionRow]


@dataclass(frozen=True, slots=True)
class LetterGroup:
    """The dead letters of one reason: how many, the last one's time, and the latest of them."""

    stage: str
    reason: str
    count: int
    last_at: datetime | None
    examples: Sequence[DeadLetter]


def version_groups(lines: Sequence[VersionLine], apart: Collection[int | None], most: int) -> list[VersionGroup]:
    """Return a workload's versions with runs of refits folded.

    ``lines``: newest first. ``apart``: numbers that are never folded: the versions in force and on trial.
    """
    by_number: dict[int | None, VersionLine] = {line.version: line for line in lines}
    return [_group(run, by_number, is_run=is_run) for is_run, run in islice(_runs(lines, apart), most)]


def letter_groups(status: DeadLetterStatus | None, letters: Sequence[DeadLetter]) -> list[LetterGroup]:
    """Return the last day's dead letters by reason, the most frequent first; ``letters``: newest first."""
    examples = defaultdict[tuple[str, str], list[DeadLetter]](list)
    for letter in letters:
        examples[letter.stage, letter.reason].append(letter)
    return [
        LetterGroup(one.stage, one.reason, one.count, one.last_at, examples[one.stage, one.reason][:SHOWN_EXAMPLES])
        for one in (() if status is None else status.by_reason)
    ]


def _runs(lines: Sequence[VersionLine], apart: Collection[int | None]) -> Iterator[tuple[bool, list[VersionLine]]]:
    """Yield runs of at least :data:`LEAST_RUN` refits, and what stands between them as one list each."""
    single: list[VersionLine] = []

    def kind(line: VersionLine) -> tuple[bool, str]:
        return line.trigger not in _COMMANDED and line.version not in apart, line.state

    for (is_refit, _), some in groupby(lines, kind):
        run = list(some)
        if not is_refit or len(run) < LEAST_RUN:
            single += run
            continue
        if single:
            yield False, single
        single = []
        yield True, run
    if single:
        yield False, single


def _group(run: Sequence[VersionLine], by_number: Mapping[int | None, VersionLine], *, is_run: bool) -> VersionGroup:
    thresholds = [line.uncertainty_threshold for line in run]
    rows = [VersionRow(line, changes(line, by_number.get(line.parent_version))) for line in run[:SHOWN_OF_RUN]]
    since, oldest = run[-1].created_at, run[-1].version
    return VersionGroup(is_run, len(run), min(thresholds), max(thresholds), since, oldest, rows)
