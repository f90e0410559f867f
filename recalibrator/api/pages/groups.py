"""Long lists folded to what differs: versions to runs of refits, dead letters to reasons. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby, islice
from typing import get_args

from recalibrator.api.read_model.dead_letter_log import DeadLetter
from recalibrator.api.read_model.version_lines import VersionLine, changes
from schemas.command import Action
from schemas.status import DeadLetterStatus

#: Fewer refits in a row are shown one by one.
LEAST_RUN = 3

SHOWN_OF_RUN, SHOWN_EXAMPLES = 6, 3
_COMMANDED = frozenset(get_args(Action))


@dataclass(frozen=True, slots=True)
class VersionRow:
    """A line of the versions' table and what it changed: name, value before, value after, by name."""

    line: VersionLine
    changed: Mapping[str, tuple[object, object]]


@dataclass(frozen=True, slots=True)
class VersionGroup:
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
    by_number = {line.version: line for line in lines}
    found = (_group(run, by_number, is_run=is_run) for is_run, run in _runs(lines, apart))
    return list(islice(found, most))


def letter_groups(status: DeadLetterStatus | None, letters: Sequence[DeadLetter]) -> list[LetterGroup]:
    """Return the reasons of the last day's dead letters, the most frequent first, each with the latest examples.

    ``letters``: newest first.
    """
    examples: dict[tuple[str, str], list[DeadLetter]] = {}
    for letter in letters:
        known = examples.setdefault((letter.stage, letter.reason), [])
        if len(known) < SHOWN_EXAMPLES:
            known.append(letter)
    return [
        LetterGroup(one.stage, one.reason, one.count, one.last_at, examples.get((one.stage, one.reason), ()))
        for one in (() if status is None else status.by_reason)
    ]


def _runs(lines: Sequence[VersionLine], apart: Collection[int | None]) -> Iterator[tuple[bool, list[VersionLine]]]:
    """Yield runs of at least :data:`LEAST_RUN` refits, and what stands between them as one list each."""
    single: list[VersionLine] = []
    for (is_refit, _), some in groupby(lines, key=lambda line: (_is_refit(line, apart), line.state)):
        run = list(some)
        if is_refit and len(run) >= LEAST_RUN:
            if single:
                yield False, single
            single = []
            yield True, run
        else:
            single = [*single, *run]
    if single:
        yield False, single


def _is_refit(line: VersionLine, apart: Collection[int | None]) -> bool:
    return line.trigger not in _COMMANDED and line.version not in apart


def _group(run: Sequence[VersionLine], by_number: Mapping[int, VersionLine], *, is_run: bool) -> VersionGroup:
    thresholds = [line.uncertainty_threshold for line in run]
    rows = [
        VersionRow(line, changes(line, None if line.parent_version is None else by_number.get(line.parent_version)))
        for line in run[:SHOWN_OF_RUN]
    ]
    since, oldest = run[-1].created_at, run[-1].version
    return VersionGroup(is_run, len(run), min(thresholds), max(thresholds), since, oldest, rows)
