"""When a record reached the broker, as far as its stamps show, and events dated no later than that.

Senders' clocks are wrong now and then. A result dated a year ahead would move the clock of the whole fit, and a label
dated ahead would stand against every later one; so neither may be dated later than its record arrived.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from schemas.event import LATEST_MS, from_ms
from schemas.feedback import FeedbackEvent
from schemas.routed import RoutedEvent

#: How far the clocks of machines that are well may differ.
TOLERANCE_MS = 5 * 60 * 1_000

#: How far back a date may lie before the clock that gave it is suspected.
BEHIND_MS = 60 * 60 * 1_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def broker_time_ms(timestamp_ms: int, now_ms: int, *, by_broker: bool) -> int:
    """Return when a record reached the broker, in Unix milliseconds.

    ``by_broker``: whether the broker dated the record (``LogAppendTime``), which nothing else can better. A producer's
    date is believed up to 5 minutes ahead of the reader: beyond that its clock is the one that dated the event wrongly.
    """
    if 0 < timestamp_ms <= (LATEST_MS if by_broker else now_ms + TOLERANCE_MS):
        return timestamp_ms
    return now_ms


def to_ms(moment: datetime) -> int:
    """Return Unix milliseconds.

    Examples
    --------
    >>> to_ms(from_ms(1_767_225_600_123))
    1767225600123
    """
    return (moment - _EPOCH) // _MILLISECOND


def dated_result(routed: RoutedEvent, arrived_ms: int) -> RoutedEvent:
    """Return the result, routed no later than its record arrived; the same object unless its clock was ahead.

    A date within the tolerance stays as it is, and with it the order of what one router decided.
    """
    if to_ms(routed.routed_at) <= arrived_ms + TOLERANCE_MS:
        return routed
    return routed.model_copy(update={"routed_at": from_ms(arrived_ms)})


def dated_feedback(feedback: FeedbackEvent, arrived_ms: int) -> FeedbackEvent:
    """Return the feedback, labelled no later than its record arrived; the same object unless its clock was ahead."""
    if feedback.labelled_at is None or to_ms(feedback.labelled_at) <= arrived_ms + TOLERANCE_MS:
        return feedback
    return feedback.model_copy(update={"labelled_at": from_ms(arrived_ms)})


def is_behind(routed: RoutedEvent, arrived_ms: int) -> bool:
    """Return whether a result is dated more than an hour before its record arrived."""
    return to_ms(routed.routed_at) < arrived_ms - BEHIND_MS
