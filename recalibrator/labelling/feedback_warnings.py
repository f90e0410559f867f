"""Likely mistakes in feedback that is taken all the same: misspelt fields, queries without a label request.

The join alone decides what becomes of feedback, later; a warning says at once what it will ignore.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from recalibrator.labelling.queue import LabelQueue
from schemas.feedback import FeedbackEvent

_MOST_UNKNOWN = 5
_SHOWN_CHARS = 60


class FeedbackWarning(NamedTuple):
    """One thing that is probably not meant; shaped as an error, but the event was taken."""

    code: str
    message: str
    field: str


def feedback_warnings(
    event: FeedbackEvent, fields: Mapping[str, Collection[str]], queue: LabelQueue | None
) -> list[FeedbackWarning]:
    """Return what is probably not meant, nothing where all is well or nothing can be known.

    Parameters
    ----------
    fields : mapping of str to collection of str
        The fields of each configured workload. Feedback names no workload: where its query's is not known, a field is
        unknown only if no workload has it.
    queue : LabelQueue or None
        The open label requests; None while they are still being read.
    """
    workload = None if queue is None else queue.workload_of(event.query_id)
    found = _unknown_fields(event, fields if workload is None else {workload: fields[workload]})
    # The first label closes the request: only of a first label can one be expected, and of a verdict never.
    is_first = event.revision == 1 and not event.retracted and event.verdict is None
    if queue is not None and queue.has_records and workload is None and is_first:
        message = (
            f"query_id: no label is requested of {event.query_id[:_SHOWN_CHARS]!r} now; it is labelled already, was "
            "not asked about, or does not exist: such feedback stays out of the estimates"
        )
        found.append(FeedbackWarning("no_open_request", message, "query_id"))
    return found


def _unknown_fields(event: FeedbackEvent, fields: Mapping[str, Collection[str]]) -> list[FeedbackWarning]:
    known = {name for names in fields.values() for name in names}
    unknown = [name for name in event.entities or () if name not in known]
    configured = ", ".join(sorted(known))
    ignored = (
        "and no other is one: the label becomes a dead letter" if len(unknown) == len(event.entities or ()) else ""
    )
    return [
        FeedbackWarning(
            "unknown_field",
            f"entities.{name[:_SHOWN_CHARS]}: no such field, {ignored or 'and ignored'}; the fields are {configured}",
            f"entities.{name[:_SHOWN_CHARS]}",
        )
        for name in unknown[:_MOST_UNKNOWN]
    ]
