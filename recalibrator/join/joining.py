"""The join of one event with what is known of its query: the state that follows, and all that goes out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from recalibrator.decoding import decode_feedback, decode_result
from recalibrator.join.broker_time import BEHIND_MS, broker_time_ms, dated_feedback, dated_result, is_behind
from recalibrator.join.placement import Placed, forwarded, original
from recalibrator.join.ports import LABELER_COUNTS
from recalibrator.join.query_state import Joined, Opinion, QueryState, Rules, reduced, take_feedback, take_result
from schemas.entities import Entities, equal
from schemas.errors import DecodeError
from schemas.event import from_ms
from schemas.feedback import FeedbackEvent
from schemas.label_requested import LabelRequested
from schemas.routed import RoutedEvent
from schemas.settings import WorkloadSettings
from schemas.status import LabelerCounts
from schemas.traffic import TrafficSummary
from ucci_runtime.broker.dead_letters import dead_letter
from ucci_runtime.broker.records import OutputRecord, Record


def count_agreement(before: QueryState, after: QueryState, rules: Rules) -> Iterator[tuple[str | None, LabelerCounts]]:
    """Yield (labeler, counts) of the opinions that became joined to a result between two states of a query."""
    if after.routed is None or not after.opinions or after.conflicting or after is before:
        return
    if after.routed.workload not in rules:
        return
    known = set() if before.routed is None else {opinion.order for opinion in before.opinions}
    # A verdict says nothing that another's label could be compared with.
    fresh = [one for one in after.opinions if one.order not in known and one.verdict is None]
    wanted = rules[after.routed.workload].fields
    common = _common_answer(after, wanted) if fresh else None
    for opinion in fresh:
        yield opinion.labeler, _counts(opinion, after.opinions, common, wanted)


def _common_answer(state: QueryState, fields: tuple[str, ...]) -> Entities | None:
    """Return what both models answered, where both did and their answers are equal."""
    assert state.routed is not None
    small, large = state.routed.small, state.routed.large
    if small is None or large is None or not (small.valid and large.valid):
        return None
    return reduced(small.entities or {}) if equal(small.entities, large.entities, fields) else None


def _counts(
    opinion: Opinion, opinions: tuple[Opinion, ...], common: Entities | None, fields: tuple[str, ...]
) -> LabelerCounts:
    if opinion.entities is None:
        return LabelerCounts(skipped=1, last_at=opinion.labelled_at)
    # A label is compared with those before it; those that come later are compared with it.
    others = [o.entities for o in opinions if o.order < opinion.order and o.entities is not None]
    return LabelerCounts(
        labels=1,
        compared=int(bool(others)),
        agreeing=int(bool(others) and all(equal(other, opinion.entities, fields) for other in others)),
        unanimous=int(common is not None),
        confirmed=int(common is not None and equal(common, opinion.entities, fields)),
        last_at=opinion.labelled_at,
    )


def add(one: LabelerCounts | None, other: LabelerCounts) -> LabelerCounts:
    """Return the sum of two counts.

    Examples
    --------
    >>> add(LabelerCounts(labels=2), LabelerCounts(labels=1, skipped=1)).labels
    3
    """
    if one is None:
        return other
    counts = {name: getattr(one, name) + getattr(other, name) for name in LABELER_COUNTS}
    return LabelerCounts(**counts, last_at=max(filter(None, (one.last_at, other.last_at)), default=None))


STAGE = "join"
#: Why a label is set aside that no result has come for.
NO_RESULT = "no_result"
Event = RoutedEvent | FeedbackEvent


@dataclass(frozen=True, slots=True)
class JoinTopics:
    """The topics of the join, by full name; without one for label requests nobody is asked."""

    results: str
    feedback: str
    repartition: str
    observations: str
    dead_letters: str
    label_requests: str | None


class Arrived(NamedTuple):
    """A record with its event, or with what is wrong with it."""

    placed: Placed
    event: Event | DecodeError


class Counted(NamedTuple):
    """One more of a metric."""

    name: str
    labels: Mapping[str, str]


class Consequences(NamedTuple):
    """What follows from one event."""

    #: The same object as before where the event changed nothing.
    state: QueryState
    #: As of when the row is fresh, in Unix milliseconds.
    touched_ms: int
    #: Counts to add to those of the labelers.
    agreement: tuple[tuple[str | None, LabelerCounts], ...]

    #: Labelled examples, label requests or their ends, dead letters.
    outputs: tuple[OutputRecord, ...] = ()
    counts: tuple[Counted, ...] = ()
    #: A result to count in its workload's traffic.
    traffic: RoutedEvent | None = None


@dataclass(frozen=True, slots=True)
class Joining:
    """The join's rules over all workloads; holds no state."""

    workloads: Mapping[str, WorkloadSettings]
    topics: JoinTopics
    max_record_bytes: int

    def read(self, record: Record) -> Arrived:
        """Return a record as its producer wrote it, with its event or what is wrong with it."""
        placed = Placed(record)
        try:
            if record.source.topic == self.topics.repartition:
                placed = original(record)
            return Arrived(placed, self._event(placed.record))
        except DecodeError as error:
            return Arrived(placed, error)

    def _event(self, record: Record) -> Event:
        """Return the event of a record of results or feedback. Raises DecodeError."""
        if record.headers_fault is not None:
            raise DecodeError("bad_headers", f"{record.headers_fault}; send keys as UTF-8")
        if record.source.topic == self.topics.feedback:
            return decode_feedback(record.value)
        return decode_result(record.value, self.workloads)

    def forward(self, arrived: Arrived, home: int, *, is_counted: bool) -> tuple[OutputRecord, Counted]:
        """Return what to write to a query's home for a record that lies elsewhere, and what to count.

        ``is_counted``: whether an earlier release has counted the record in its traffic.
        """
        assert not isinstance(arrived.event, DecodeError)
        record = arrived.placed.record
        sent_on = forwarded(
            arrived.placed, self.topics.repartition, home, arrived.event.query_id, is_counted=is_counted
        )

        def too_large(limit_bytes: int) -> OutputRecord:
            error = (
                f"record: takes {sent_on.size_bytes} bytes with the headers of its origin, {limit_bytes} at most; "
                "send fewer or shorter headers, or write it to the partition that crc32(query_id) names"
            )
            return self.dead_letter(record, "too_large", error)[0]

        return replace(sent_on, instead=too_large), Counted("records_forwarded", {"topic": record.source.topic})

    def dead_letter(self, record: Record, reason: str, error: str) -> tuple[OutputRecord, Counted]:
        """Return a record's dead letter, and what to count."""
        letter = dead_letter(self.topics.dead_letters, record, stage=STAGE, reason=reason, error=error)
        return letter, Counted("dead_letters", {"stage": STAGE, "reason": reason})

    def labels_without_result(self, state: QueryState, query_id: str) -> list[tuple[OutputRecord, Counted]]:
        """Return the dead letters of a query's labels whose result has not come and is waited for no longer."""
        error = (
            f"query_id: no result named {query_id!r} while this label was kept; correct the id, or send the query, "
            "then replay this letter"
        )
        return [self.dead_letter(record, NO_RESULT, error) for record in state.waiting_records]

    def join(self, before: QueryState, arrived: Arrived, now_ms: int, *, is_live: bool) -> Consequences:
        """Join one event with what is known of its query.

        ``is_live``: whether outputs go out; while a home catches up they are in the topics already.
        """
        (record, was_counted), event = arrived
        assert not isinstance(event, DecodeError)
        arrived_ms = broker_time_ms(record.timestamp_ms, now_ms, by_broker=record.by_broker)
        touched_ms = _touched_ms(record, arrived_ms, now_ms, is_live=is_live)
        event, remarks = _dated(event, arrived_ms, by_broker=record.by_broker)
        if isinstance(event, RoutedEvent):
            joined = take_result(before, event, self.workloads, from_ms(touched_ms))
        else:
            joined = take_feedback(before, event, from_ms(arrived_ms), self.workloads, record)
        agreement = tuple(count_agreement(before, joined.state, self.workloads))
        if not is_live:
            return Consequences(joined.state, touched_ms, agreement)
        outputs, counts = self._outputs(before, joined)
        if joined.refusal is not None:
            letter, counted = self.dead_letter(record, *joined.refusal)
            outputs, counts = [*outputs, letter], [*counts, counted]
        counts = [*(Counted("join_notes", {"note": note}) for note in (*remarks, *joined.notes)), *counts]
        traffic = event if isinstance(event, RoutedEvent) and not was_counted else None
        if traffic is not None:
            counts.append(Counted("results", {"workload": traffic.workload}))
        return Consequences(joined.state, touched_ms, agreement, tuple(outputs), tuple(counts), traffic)

    def summary_records(self, summaries: Iterable[TrafficSummary]) -> list[OutputRecord]:
        """Return the records of traffic summaries."""
        return [OutputRecord(self.topics.observations, one.workload.encode(), one.to_json()) for one in summaries]

    def _outputs(self, before: QueryState, joined: Joined) -> tuple[list[OutputRecord], list[Counted]]:
        outputs, counts = self._request_change(before, joined.state)
        example = joined.example
        if example is not None:
            retracted = str(example.retracted).lower()
            counts.append(Counted("examples", {"workload": example.workload, "retracted": retracted}))
            outputs.append(OutputRecord(self.topics.observations, example.workload.encode(), example.to_json()))
        return outputs, counts

    def _request_change(self, before: QueryState, after: QueryState) -> tuple[list[OutputRecord], list[Counted]]:
        """Return what becomes of a label request; no record where it is too large and nobody can be asked."""
        topic, routed = self.topics.label_requests, after.routed
        if topic is None or before.awaits_label == after.awaits_label:
            return [], []
        assert routed is not None
        outcome = "opened" if after.awaits_label else "expired" if after.conflicting else "answered"
        value = LabelRequested.from_result(routed).to_json() if after.awaits_label else None
        record = OutputRecord(topic, routed.query_id.encode(), value)
        if value is not None and record.size_bytes > self.max_record_bytes:
            outcome = "too_large"
        counted = Counted("label_requests", {"workload": routed.workload, "outcome": outcome})
        return [] if outcome == "too_large" else [record], [counted]


def _touched_ms(record: Record, arrived_ms: int, now_ms: int, *, is_live: bool) -> int:
    """Return as of when rows and label requests that this record changes are fresh; the store never goes back.

    A producer may stamp its record with any time, and a stamp of the past must not make a row old at once: beyond an
    hour back, what comes live counts as of now. A partition that catches up reads again what it took long ago, and only
    the stamp says when that was.
    """
    if is_live and not record.by_broker and arrived_ms < now_ms - BEHIND_MS:
        return now_ms
    return min(arrived_ms, now_ms)


def _dated(event: Event, arrived_ms: int, *, by_broker: bool) -> tuple[Event, tuple[str, ...]]:
    """Return the event, dated no later than it arrived, and what is worth counting about its sender's clock."""
    if isinstance(event, FeedbackEvent):
        feedback = dated_feedback(event, arrived_ms)
        return feedback, () if feedback is event else ("clock_ahead",)
    routed = dated_result(event, arrived_ms)
    if routed is not event:
        return routed, ("clock_ahead",)
    # A producer's own stamp is as wrong as its date; only the broker's shows it.
    return routed, ("clock_behind",) if by_broker and is_behind(routed, arrived_ms) else ()
