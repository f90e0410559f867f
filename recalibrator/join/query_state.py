"""The state of one query: its result, its labelers' opinions, and the labelled example that stands now.

Results and feedback may come in any interleaving: the end is the same. A query's contribution is never counted twice:
each example carries a ``revision`` above all those before it, and names the labeler whose opinion it is.

The rules: a feedback event is taken once (by its id); of each labeler the highest revision stands, among equals the
last to arrive; among labelers the latest ``labelled_at``. A withdrawn or skipped opinion does not stand, and lets the
earlier one stand again. A verdict stands where nobody gave entities, else it goes along with the label. Of several
results under one query_id the first is kept, if their texts are equal. Where they differ, nobody can know which of them
a label is about: no label of that id counts, before or after.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Annotated, NamedTuple, cast

from pydantic import Field

from schemas.costs import QueryCost
from schemas.entities import Entities, equal, normalise, spells_any_nothing, with_nulls
from schemas.event import Count, Many, Part, Timestamp
from schemas.feedback import GATEWAY, FeedbackEvent, Verdict
from schemas.json_bytes import validated
from schemas.labelled import LabelledExample
from schemas.routed import ModelRun, QueryHandoff, RoutedEvent
from schemas.settings import WorkloadSettings
from ucci_runtime.broker.records import Input, Record

#: Characters of a normal form above which its digest is kept.
LONGEST_VALUE = 32

_DIGEST_CHARS = 24
_TEXT_DIGEST_CHARS = 16
_NO_COST = QueryCost(sequential=0.0, paper=0.0)


def compact(routed: RoutedEvent) -> RoutedEvent:
    """Return the result without what the join does not need: metadata, costs, latencies.

    Of a text that nobody labels a digest is kept. The :func:`comparable` form of what is returned equals that of the
    whole one, costs and texts aside.
    """
    asked, handoff = routed.label.requested, routed.handoff
    return routed.model_copy(
        update={
            "text": routed.text if asked else _text_digest(routed.text),
            "entities": routed.entities if asked else reduced(routed.entities),
            "small": _bare(routed.small, whole=asked),
            "large": _bare(routed.large, whole=asked),
            "cost": _NO_COST,
            "routed_by": "",
            "metadata": None,
            "handoff": handoff
            and QueryHandoff(name=handoff.name, guarded=handoff.guarded, alone=_bare(handoff.alone, whole=asked)),
        }
    )


def is_of_same_query(kept: RoutedEvent, routed: RoutedEvent) -> bool:
    """Return whether a result is of the workload and text that a compact one of its id is of."""
    text = routed.text if kept.label.requested else _text_digest(routed.text)
    return kept.workload == routed.workload and kept.text == text


def comparable(routed: RoutedEvent) -> RoutedEvent:
    """Return the result with its answers reduced, to be compared with a label of which the same is true."""
    return routed.model_copy(
        update={
            "entities": reduced(routed.entities),
            "small": _reduced_run(routed.small),
            "large": _reduced_run(routed.large),
            "handoff": routed.handoff
            and routed.handoff.model_copy(update={"alone": _reduced_run(routed.handoff.alone)}),
        }
    )


def reduced(entities: Entities) -> Entities:
    """Return the entities with long values as digests and each only once; reducing them again changes nothing.

    Examples
    --------
    >>> reduced({"iso": "100", "lens": "x" * 33}) == reduced({"iso": "100", "lens": "X" * 33})
    True
    >>> len(reduced({"lens": "x" * 4_000})["lens"])
    24
    """
    return {
        name: value
        if value is None
        else _reduced_text(value)
        if isinstance(value, str)
        else tuple(dict.fromkeys(map(_reduced_text, value)))
        for name, value in entities.items()
    }


def _text_digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:_TEXT_DIGEST_CHARS]


def _reduced_text(text: str) -> str:
    # Folding makes no ASCII text longer; one character of another script can become eighteen.
    if len(text) <= LONGEST_VALUE and text.isascii():
        return text
    folded = normalise(text)
    return folded if len(folded) <= LONGEST_VALUE else sha256(folded.encode()).hexdigest()[:_DIGEST_CHARS]


def _reduced_run(run: ModelRun | None) -> ModelRun | None:
    if run is None or run.entities is None:
        return run
    return run.model_copy(update={"entities": reduced(run.entities)})


def _bare(run: ModelRun | None, *, whole: bool) -> ModelRun | None:
    if run is None:
        return None
    entities = run.entities if whole or run.entities is None else reduced(run.entities)
    return ModelRun(model="", entities=entities, valid=run.valid)


#: Labelers of one query; feedback of one more is refused.
MAX_LABELERS = 64

#: Bytes of all labels of one query, long values as digests; feedback that would take more is refused.
MAX_OPINION_BYTES = 100_000

#: Feedback ids remembered for one query.
MAX_SEEN = 256

_ID_CHARS = 16
_NAMES_CHARS = 200


#: By what labels are read, by workload.
Rules = Mapping[str, WorkloadSettings]


class WaitingRecord(Part):
    """The record of a label whose result has not come: all that its dead letter needs, should none ever come.

    Bytes are kept as Latin-1 text, one character a byte.
    """

    topic: str
    partition: int
    offset: int
    key: str | None = None
    value: str = ""
    headers: Many[tuple[str, str | None]] = ()

    @classmethod
    def of(cls, record: Record) -> WaitingRecord:
        """Return what is kept of a record; a value longer than ``MAX_OPINION_BYTES`` is cut."""
        return cls(
            topic=record.source.topic,
            partition=record.source.partition,
            offset=record.offset,
            key=_as_text(record.key),
            value=_as_text((record.value or b"")[:MAX_OPINION_BYTES]) or "",
            headers=tuple((name, _as_text(value)) for name, value in record.headers),
        )

    def record(self) -> Record:
        """Return the record again."""
        return Record(
            Input(self.topic, self.partition),
            self.offset,
            _as_bytes(self.key),
            _as_bytes(self.value),
            headers=tuple((name, _as_bytes(value)) for name, value in self.headers),
        )


def _as_text(content: bytes | None) -> str | None:
    return None if content is None else content.decode("latin-1")


def _as_bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("latin-1")


class Opinion(Part):
    """What one labeler says of one query at last."""

    labeler: str | None = None
    #: Long values as digests; None when it was withdrawn or skipped, or a verdict.
    entities: Entities | None = None
    verdict: Verdict | None = None
    #: Whether the labeler looked and left it.
    skipped: bool = False

    labelled_at: Timestamp
    #: The labeler's own count.
    revision: Annotated[int, Field(ge=1)] = 1
    #: As which of the query's feedback events it was taken.
    order: Annotated[int, Field(ge=1)]
    #: Where its record lies in the feedback, and when the broker took it in Unix milliseconds; 0 where that is unknown.
    partition: int = -1
    offset: int = -1
    arrived_ms: Count = 0
    #: Its record, while no result has come and it says something.
    record: WaitingRecord | None = None


class QueryState(Part):
    """All that is kept of one query."""

    #: The result, without what the fit does not need; None while only feedback has come.
    routed: RoutedEvent | None = None
    #: One for each labeler, in order of labeler.
    opinions: Many[Opinion] = ()
    #: Feedback events taken; the revision of the next example.
    received: Count = 0
    #: Short hashes of the ids of the feedback events taken, oldest first.
    seen: Many[str] = ()
    #: When the result came, if its label was requested: the age of a request does not rest on the router's clock.
    asked_at: Timestamp | None = None
    #: Whether results with different texts, or of different workloads, came under this id.
    conflicting: bool = False

    @property
    def standing(self) -> Opinion | None:
        """The label that counts, if any does."""
        return None if self.conflicting else _latest(one for one in self.opinions if one.entities is not None)

    @property
    def waiting_records(self) -> list[Record]:
        """The records of labels whose result has not come."""
        return [one.record.record() for one in self.opinions if one.record is not None]

    @property
    def awaits_label(self) -> bool:
        """Whether a label was requested and nobody has given one or skipped.

        A withdrawal leaves it awaited again, and a verdict leaves it as it was: it does not say what is right.
        """
        if self.routed is None or not self.routed.label.requested or self.conflicting:
            return False
        return not any(opinion.entities is not None or opinion.skipped for opinion in self.opinions)


class Refusal(NamedTuple):
    """Why an event does not count: a machine-readable reason, and a line that names the limit, or who sent it."""

    reason: str
    error: str


class Joined(NamedTuple):
    """What one event led to.

    ``notes`` name what is worth counting: ``duplicate_result``, ``duplicate_feedback``, ``stale_revision``,
    ``disagreement``, ``skipped``, ``verdict``, ``withdrawn``, ``withdrawn_unknown``, ``unknown_fields``,
    ``unknown_workload`` (a label of a workload that the settings no longer name), ``conflicting_result`` (results that
    differ under one id, and labels of it), ``foreign_verdict`` (by a gateway key, before the result showed that another
    key had asked), ``spelt_null`` and ``spelt_null_answer`` (a label, or a model's answer, holds a value such as "None"
    that its workload's ``null_texts`` do not name). ``refusal`` is why the event does not count.
    """

    state: QueryState
    example: LabelledExample | None = None
    notes: tuple[str, ...] = ()
    refusal: Refusal | None = None


NOTHING_KNOWN = QueryState()
_CONFLICT, _FOREIGN = "conflicting_result", "foreign_verdict"
_SPELT_NULL, _SPELT_NULL_ANSWER = "spelt_null", "spelt_null_answer"


class _Said(NamedTuple):
    """Which opinion stands, how many other labelers hold another, and whose verdict is the last."""

    opinion: Opinion | None = None
    disputed: int = 0
    verdict: Opinion | None = None


_NOTHING_SAID = _Said()


def take_result(state: QueryState, routed: RoutedEvent, rules: Rules, arrived_at: datetime | None = None) -> Joined:
    """Take a query's result.

    ``arrived_at``: when its record came; the age of its label request counts from then. The outcome holds an example
    where a label has waited for this result, or one that takes out the label that stood where this result is not of the
    query that the first one was of; the first such result is refused.
    """
    ours = rules[routed.workload]
    if state.routed is not None:
        if is_of_same_query(state.routed, routed):
            return Joined(state, None, ("duplicate_result",))
        return _conflict(state, state.routed, routed, rules)
    asked_at = arrived_at if routed.label.requested else None
    routed, stated = _nulled_result(routed, ours.nulls), tuple(_nulled(one, ours.nulls) for one in state.opinions)
    known = tuple(one for one in stated if _names_any(one, ours.fields))
    notes: tuple[str, ...] = () if len(known) == len(state.opinions) else ("unknown_fields",)
    opinions = tuple(one.model_copy(update={"record": None}) for one in known if not _is_foreign(routed, one.labeler))
    notes = notes if len(opinions) == len(known) else (*notes, _FOREIGN)
    if any(run is not None and spells_any_nothing(run.entities, ours.nulls) for run in (routed.small, routed.large)):
        notes = (*notes, _SPELT_NULL_ANSWER)
    following = state.model_copy(update={"routed": compact(routed), "asked_at": asked_at, "opinions": opinions})
    return _change(following, _NOTHING_SAID, ours, notes)


def take_feedback(
    state: QueryState, feedback: FeedbackEvent, arrived_at: datetime, rules: Rules, record: Record | None = None
) -> Joined:
    """Take what a labeler said.

    ``arrived_at``: stands in for a missing ``labelled_at``. ``record``: that the event came in, kept while the label
    waits for its result. The outcome holds an example when the result is known, and
    the standing opinion or the number of those against it changed; a refusal when the query would hold too many
    labelers or bytes, no field of the label is known, or a gateway key judges what another one asked.
    """
    identity = _identity(feedback)
    if identity in state.seen:
        return Joined(state, None, ("duplicate_feedback",))
    counted = {"received": state.received + 1, "seen": (*state.seen, identity)[-MAX_SEEN:]}
    earlier = next((o for o in state.opinions if o.labeler == feedback.labeler), None)
    if earlier is not None and _is_overtaken(feedback, record, earlier):
        # Counted all the same: the next example's revision must not depend on the order of arrival.
        return Joined(state.model_copy(update=counted), None, ("stale_revision",))
    is_silent = feedback.retracted or (feedback.entities is None and feedback.verdict is None)
    taken = Opinion(
        labeler=feedback.labeler,
        entities=None if feedback.retracted or feedback.entities is None else reduced(feedback.entities),
        verdict=None if feedback.retracted else feedback.verdict,
        skipped=not feedback.retracted and feedback.entities is None and feedback.verdict is None,
        labelled_at=feedback.labelled_at or arrived_at,
        revision=feedback.revision,
        order=state.received + 1,
        **_place(record),
        record=None if record is None or state.routed is not None or is_silent else WaitingRecord.of(record),
    )
    nulls = _nulls_of(state, rules)
    taken = _nulled(taken, nulls)
    others = tuple(o for o in state.opinions if o.labeler != feedback.labeler)
    refusal = (
        _refusal(feedback.query_id, state.opinions, (*others, taken))
        or _misspelt(state, taken, rules)
        or _foreign(state, feedback.labeler)
    )
    if refusal is not None:
        return Joined(state, None, (), refusal)
    opinions = tuple(sorted((*others, taken), key=lambda o: (o.labeler is not None, o.labeler or "")))
    following = state.model_copy(update=counted | {"opinions": opinions})
    notes = _remarks(feedback, taken, earlier, others)
    notes = (*notes, _SPELT_NULL) if spells_any_nothing(taken.entities, nulls) else notes
    if state.routed is None or state.conflicting:
        return Joined(following, None, (*notes, _CONFLICT) if state.conflicting else notes)
    ours = rules.get(state.routed.workload)
    if ours is None:
        return Joined(following, None, (*notes, "unknown_workload"))
    return _change(following, _said(state, ours), ours, notes)


def _conflict(state: QueryState, first: RoutedEvent, second: RoutedEvent, rules: Rules) -> Joined:
    """Count neither result of one id, and take out the label that stood."""
    if state.conflicting:
        return Joined(state, None, (_CONFLICT,))
    # The count is one of events; what takes the label out must come after the example that put it in.
    following = state.model_copy(update={"conflicting": True, "received": state.received + 1})
    ours = rules.get(first.workload)
    example = None if ours is None else _change(following, _said(state, ours), ours, ()).example
    senders = " and ".join(_sender(one) for one in (first, second))
    error = f"query_id: {first.query_id!r} has results of different queries, {senders}: no label of this id counts"
    return Joined(following, example, (_CONFLICT,), Refusal(_CONFLICT, f"{error}; give each query an id of its own"))


def _sender(routed: RoutedEvent) -> str:
    return "one without a gateway key" if routed.caller is None else f"one by gateway key {routed.caller!r}"


def _is_foreign(routed: RoutedEvent, labeler: str | None) -> bool:
    """Return whether a gateway key judges what another one asked; its own gateway may not have known who did."""
    whose = f"{GATEWAY}:{routed.caller}"
    return routed.caller is not None and (labeler or "").startswith(f"{GATEWAY}:") and labeler != whose


def _foreign(state: QueryState, labeler: str | None) -> Refusal | None:
    if state.routed is None or not _is_foreign(state.routed, labeler):
        return None
    error = f"labeler: {labeler!r} did not ask query {state.routed.query_id!r}, another gateway key did"
    return Refusal(_FOREIGN, f"{error}: send a verdict with the key that asked")


def _identity(feedback: FeedbackEvent) -> str:
    """Return the event's id as it is remembered; it is its labeler's own, so that nobody can spend another's."""
    whose = feedback.labeler or ""
    return sha256(f"{len(whose)}:{whose}{feedback.identity()}".encode()).hexdigest()[:_ID_CHARS]


def _nulls_of(state: QueryState, rules: Rules) -> frozenset[str]:
    """Return the texts that are null in a query's labels; before its result has come, those on which all agree."""
    ours = rules.values() if state.routed is None else filter(None, (rules.get(state.routed.workload),))
    named = {one.nulls for one in ours}
    return named.pop() if len(named) == 1 else frozenset()


def _nulled(opinion: Opinion, nulls: frozenset[str]) -> Opinion:
    if not nulls or opinion.entities is None:
        return opinion
    return opinion.model_copy(update={"entities": with_nulls(opinion.entities, nulls)})


def _nulled_result(routed: RoutedEvent, nulls: frozenset[str]) -> RoutedEvent:
    """Return a result as a router with these texts would have made it."""
    if not nulls:
        return routed
    handoff = routed.handoff and routed.handoff.model_copy(update={"alone": _nulled_run(routed.handoff.alone, nulls)})
    small, large = _nulled_run(routed.small, nulls), _nulled_run(routed.large, nulls)
    entities = with_nulls(routed.entities, nulls)
    return routed.model_copy(update={"entities": entities, "small": small, "large": large, "handoff": handoff})


def _nulled_run(run: ModelRun | None, nulls: frozenset[str]) -> ModelRun | None:
    if run is None or run.entities is None:
        return run
    return run.model_copy(update={"entities": with_nulls(run.entities, nulls)})


def _latest(opinions: Iterable[Opinion]) -> Opinion | None:
    return max(opinions, key=lambda one: (one.labelled_at, one.arrived_ms, one.order), default=None)


def _place(record: Record | None) -> dict[str, int]:
    """Return what is kept of where a record lies, and of when the broker took it."""
    if record is None:
        return {}
    place = {"partition": record.source.partition, "offset": record.offset}
    return place | {"arrived_ms": record.timestamp_ms} if record.by_broker else place


def _is_overtaken(feedback: FeedbackEvent, record: Record | None, earlier: Opinion) -> bool:
    """Return whether an opinion of the same labeler, which was taken before this feedback, stands against it.

    Of equal revisions the last to arrive at the broker stands. A join that reads its topics again meets records of
    different partitions in another order than before, so the order in which it takes them decides nothing by itself.
    Within a partition the offsets tell, unless the topic was made anew since; between partitions, the broker's clock.
    """
    if feedback.revision != earlier.revision:
        return feedback.revision < earlier.revision
    place = _place(record)
    if not place:
        return False
    arrived_ms = place.get("arrived_ms", 0)
    if place["partition"] == earlier.partition:
        return place["offset"] < earlier.offset and arrived_ms <= earlier.arrived_ms
    return 0 < arrived_ms < earlier.arrived_ms


def _names_any(opinion: Opinion, fields: Iterable[str]) -> bool:
    """Return whether a label names one of these fields, or names none at all, which says that the query does not."""
    return not opinion.entities or not opinion.entities.keys().isdisjoint(fields)


def _misspelt(state: QueryState, opinion: Opinion, rules: Rules) -> Refusal | None:
    """Return why a label of other fields is none: counted, it would say that the query has nothing in any of ours."""
    ours = rules.values() if state.routed is None else filter(None, (rules.get(state.routed.workload),))
    fields = sorted({name for one in ours for name in one.fields})
    if not fields or _names_any(opinion, fields):
        return None
    named, wanted = (", ".join(map(repr, names))[:_NAMES_CHARS] for names in (opinion.entities or (), fields))
    return Refusal("unknown_fields", f"entities: {named}: none is a field here; the fields are {wanted}")


def _refusal(query_id: str, before: Sequence[Opinion], after: Sequence[Opinion]) -> Refusal | None:
    """Return why these opinions are more than one query may hold; what is above a limit already may still shrink."""
    if len(after) > max(MAX_LABELERS, len(before)):
        error = f"labeler: query {query_id!r} has labels of {len(before)} labelers, of {MAX_LABELERS} at most"
        return Refusal("too_many_labelers", f"{error}; ask fewer people about one query")
    size = sum(map(_bytes, after))
    if size > MAX_OPINION_BYTES and size > sum(map(_bytes, before)):
        error = f"entities: the labels of query {query_id!r} would take {size} bytes, {MAX_OPINION_BYTES} at most"
        return Refusal("labels_too_large", f"{error}; send fewer or shorter values")
    return None


def _bytes(opinion: Opinion) -> int:
    """Return about how many bytes the opinion's name and entities take as JSON, quotes and commas included."""
    entities = opinion.entities or {}
    values = ((value,) if isinstance(value, str) else value or () for value in entities.values())
    texts = (text for texts in ((opinion.labeler or "",), entities, *values) for text in texts)
    return sum(len(text.encode()) + 3 for text in texts)


def _remarks(
    feedback: FeedbackEvent, taken: Opinion, earlier: Opinion | None, others: tuple[Opinion, ...]
) -> tuple[str, ...]:
    if feedback.retracted:
        known = earlier is not None and (earlier.entities is not None or earlier.verdict is not None)
        return ("withdrawn",) if known else ("withdrawn_unknown",)
    if taken.entities is None:
        return ("skipped",) if taken.verdict is None else ("verdict",)
    differs = any(o.entities is not None and not equal(o.entities, taken.entities) for o in others)
    return ("disagreement",) if differs else ()


def _said(state: QueryState, rules: WorkloadSettings) -> _Said:
    if state.conflicting:
        return _NOTHING_SAID
    stands, verdict = state.standing, _latest(o for o in state.opinions if o.verdict is not None)
    if stands is None:
        return _Said(verdict, 0, verdict)
    others = (o.entities for o in state.opinions if o.order != stands.order and o.entities is not None)
    return _Said(stands, sum(not equal(other, stands.entities, rules.fields) for other in others), verdict)


def _change(state: QueryState, sent: _Said, rules: WorkloadSettings, notes: tuple[str, ...]) -> Joined:
    """Return what changed for the fit, which has been sent what is in ``sent``."""
    said = _said(state, rules)
    if said == sent:
        return Joined(state, None, notes)
    if (stands := said.opinion) is None:
        withdrawal = max(state.opinions, key=lambda o: o.order)
        # It carries the labeler whose opinion stood, who need not be who said the last word.
        return Joined(state, _example(state, sent, rules, withdrawn_at=withdrawal.labelled_at), notes)
    is_new = sent.opinion is None or sent.opinion.order != stands.order
    if is_new and any(name not in rules.fields for name in stands.entities or ()):
        notes = (*notes, "unknown_fields")
    return Joined(state, _example(state, said, rules), notes)


def _example(
    state: QueryState, said: _Said, rules: WorkloadSettings, withdrawn_at: datetime | None = None
) -> LabelledExample:
    opinion = said.opinion
    assert state.routed is not None
    assert opinion is not None
    feedback = FeedbackEvent(
        query_id=state.routed.query_id,
        entities=opinion.entities,
        verdict=opinion.verdict,
        labeler=opinion.labeler,
        labelled_at=withdrawn_at or opinion.labelled_at,
        retracted=withdrawn_at is not None,
    )
    routed = comparable(state.routed)
    example = LabelledExample.from_events(
        routed,
        feedback,
        fields=rules.fields,
        revision=state.received,
        trusted_labelers=rules.trusted_labelers,
        disputed=0 if withdrawn_at is not None else said.disputed,
    )
    if said.verdict is not None and withdrawn_at is None:
        example = example.model_copy(update={"verdict": said.verdict.verdict})
    return example.with_small_counts(routed, feedback, tuple(rules.target.fields))


# What is most common stands last, where the distances are shortest.
_DICTIONARY = (
    b'"asked_at":"2026-01-01T00:00:00Z","seen":["","],"received":1,"opinions":[{"labeler":"label-studio:","entities":{'
    b'"labelled_at":"2026-01-01T00:00:00.000000Z","revision":2,"order":1},{"labeler":"","skipped":true,"order":2}],'
    b'"trial":{"version":1,"mode":"shadow","mode":"canary","escalated":true,"base_version":1,"base_escalated":false,'
    b'"acted":false}},"label":{"requested":true,"probability":0.1,"reason":"audit"},"reason":"exploration"},'
    b'"reason":"random"},"reason":"cold_start","reason":"infeasible","reason":"small_failed","reason":"degraded",'
    b'"small":null,"uncertainty":null,"error_probability":null,"threshold":null,"calibration_version":null,'
    b'"answered_by":"large","decision":{"escalated":true,"reason":"threshold","large_probability":1.0},'
    b'"small":{"model":"","entities":null,"valid":false},"large":{"model":"","entities":{"},"valid":true},'
    b'{"routed":{"query_id":"","workload":"","text":"","entities":{""},"answered_by":"small","decision":'
    b'{"escalated":false,"reason":"kept","uncertainty":0.0,"error_probability":0.0,"threshold":0.0,'
    b'"calibration_version":1,"large_probability":0.03},"small":{"model":"","entities":{""},"valid":true},"large":null,'
    b'"cost":{"sequential":0.0,"paper":0.0},"label":{"requested":false,"probability":0.05},'
    b'"routed_at":"2026-01-01T00:00:00.000000Z","routed_by":""}}'
)
_LEVEL = 6
#: Of a row's JSON: sixteen records of the largest size. A damaged row must not fill the memory.
_MAX_BYTES = 16_000_000


def encoded(state: QueryState) -> bytes:
    """Return the state as bytes."""
    packer = zlib.compressobj(_LEVEL, zdict=_DICTIONARY)
    return packer.compress(state.model_dump_json(exclude_defaults=True).encode()) + packer.flush()


def decoded(stored: bytes) -> QueryState:
    """Return the state of stored bytes. Raises ValueError or zlib.error when they are torn."""
    unpacker = zlib.decompressobj(zdict=_DICTIONARY)
    content = unpacker.decompress(stored, _MAX_BYTES)
    if unpacker.unconsumed_tail:
        raise zlib.error(f"the row unpacks to more than {_MAX_BYTES} bytes")
    return cast(QueryState, validated(QueryState.__pydantic_validator__, content))
