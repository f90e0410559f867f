"""What is looked at as feedback comes in: which revision it is, and likely mistakes, which the join will ignore."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from recalibrator.labelling.field_names import FieldNames
from recalibrator.labelling.queue import LabelQueue
from schemas.entities import spelt_nothings
from schemas.feedback import MAX_REVISION, FeedbackEvent
from schemas.settings import WorkloadSettings

_MOST_UNKNOWN = 5
_SHOWN_CHARS = 60

MAX_REMEMBERED = 20_000
_MOST_IDS = 4


class FeedbackWarning(NamedTuple):
    """One thing that is probably not meant; shaped as an error, but the event was taken."""

    code: str
    message: str
    field: str


def feedback_warnings(
    event: FeedbackEvent, workloads: Mapping[str, WorkloadSettings], queue: LabelQueue | None
) -> list[FeedbackWarning]:
    """Return what is probably not meant, nothing where all is well or nothing can be known.

    Feedback names no workload: where its query's is not known, a field is unknown only if no workload has it, and a
    text null only if all say so. ``queue``: None while the open requests are still being read.
    """
    workload = None if queue is None else queue.workload_of(event.query_id)
    possible = list(workloads.values()) if workload is None else [workloads[workload]]
    warnings: list[FeedbackWarning] = []
    if possible:
        warnings += _unknown_fields(event, {name for settings in possible for name in settings.fields})
    warnings += _spelt_nothings(event, possible)
    # The first label closes the request: only of a first label can one be expected, and of a verdict never.
    is_first = event.revision == 1 and not event.retracted and event.verdict is None
    if queue is not None and queue.has_records and workload is None and is_first:
        message = (
            f"query_id: no label is requested of {event.query_id[:_SHOWN_CHARS]!r} now; it is labelled already, was "
            "not asked about, or does not exist: such feedback stays out of the estimates"
        )
        warnings.append(FeedbackWarning("no_open_request", message, "query_id"))
    return warnings


def _spelt_nothings(event: FeedbackEvent, possible: Sequence[WorkloadSettings]) -> list[FeedbackWarning]:
    nulls = frozenset.intersection(*(settings.nulls for settings in possible)) if possible else frozenset()
    name = possible[0].name if len(possible) == 1 else "NAME"
    remedy = f"send null, or add the text to workloads.{name}.null_texts"
    spelt = dict(spelt_nothings(event.entities, nulls))
    return [
        FeedbackWarning("spelt_null", f"{place}: {text!r} counts as a value: if nothing is meant, {remedy}", place)
        for field, text in list(spelt.items())[:_MOST_UNKNOWN]
        for place in [f"entities.{field[:_SHOWN_CHARS]}"]
    ]


def _unknown_fields(event: FeedbackEvent, known: Collection[str]) -> list[FeedbackWarning]:
    unknown = [name for name in event.entities or () if name not in known]
    if not unknown:
        return []
    is_lost = len(unknown) == len(event.entities or ())
    what = "and no other is one: the label becomes a dead letter" if is_lost else "and ignored"
    what = f"no such field, {what}; the fields are {', '.join(sorted(known))}"
    names = FieldNames(sorted(known))
    warnings = []
    for name in unknown[:_MOST_UNKNOWN]:
        place = f"entities.{name[:_SHOWN_CHARS]}"
        near = names.meant(name) or names.slip_of(name)
        hint = "" if near is None else f"; is {near} meant?"
        warnings.append(FeedbackWarning("unknown_field", f"{place}: {what}{hint}", place))
    return warnings


class RecentRevisions:
    """The highest revision of each labeler's latest feedback on a query; bounded, and of this process alone."""

    def __init__(self) -> None:
        #: The longest untouched first.
        self._taken: dict[tuple[str, str | None], tuple[int, tuple[str, ...]]] = {}

    def following(self, event: FeedbackEvent) -> int:
        """Return the revision that makes an event the newest of its labeler on its query: 1 where none is known."""
        return min(self._known(event)[0] + 1, MAX_REVISION)

    def newer(self, event: FeedbackEvent) -> int | None:
        """Return the revision that an event is too old for; None for one that may stand, or is sent again."""
        known, ids = self._known(event)
        return known if event.revision < known and event.identity() not in ids else None

    def remember(self, event: FeedbackEvent) -> None:
        """Remember an event that was taken."""
        known, ids = self._known(event)
        key = (event.query_id, event.labeler)
        self._taken.pop(key, None)
        self._taken[key] = (max(known, event.revision), (*ids, event.identity())[-_MOST_IDS:])
        if len(self._taken) > MAX_REMEMBERED:
            del self._taken[next(iter(self._taken))]

    def _known(self, event: FeedbackEvent) -> tuple[int, tuple[str, ...]]:
        return self._taken.get((event.query_id, event.labeler), (0, ()))
