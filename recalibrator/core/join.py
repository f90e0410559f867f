"""One query's result and all that labelers said of it → the labelled example that stands now.

What is known of a query and one more event flow in; what is known then, and what to tell the fit, flow out. Results
and feedback may come in any interleaving: the end is the same. A query's contribution is never counted twice: each
example carries a ``revision`` above all those before it.

The rules: a feedback event is taken once (by its id); of each labeler the highest revision stands, among equals the
last to arrive; among labelers the latest ``labelled_at``. A withdrawn or skipped opinion does not stand, and lets the
earlier one stand again. Of several results under one query_id the first is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import Annotated, NamedTuple

from pydantic import Field

from schemas.entities import Entities, equal
from schemas.event import Count, Part, Timestamp
from schemas.feedback import FeedbackEvent
from schemas.labelled import LabelledExample
from schemas.routed import ModelRun, QueryCost, RoutedEvent

MAX_LABELERS = 64
"""Opinions kept of one query; beyond it the one labelled first is forgotten."""

MAX_SEEN = 256
"""Feedback ids remembered for one query."""

_ID_CHARS = 16
_NO_COST = QueryCost(sequential=0.0, paper=0.0)

Fields = Mapping[str, tuple[str, ...]]
"""The fields of each workload."""


class Opinion(Part):
    """What one labeler says of one query at last.

    Parameters
    ----------
    entities : dict or None
        None when it was withdrawn or skipped.
    skipped : bool
        Whether the labeler looked and left it.
    revision : int
        The labeler's own count.
    order : int
        As which of the query's feedback events it was taken.
    """

    labeler: str | None = None
    entities: Entities | None = None
    skipped: bool = False
    labelled_at: Timestamp
    revision: Annotated[int, Field(ge=1)] = 1
    order: Annotated[int, Field(ge=1)]


class JoinState(Part):
    """All that is kept of one query.

    Parameters
    ----------
    routed : RoutedEvent or None
        The result, without what the fit does not need; None while only feedback has come.
    opinions : tuple of Opinion
        One for each labeler, in order of labeler.
    received : int
        Feedback events taken; the revision of the next example.
    seen : tuple of str
        Short hashes of the ids of the feedback events taken, oldest first.
    """

    routed: RoutedEvent | None = None
    opinions: tuple[Opinion, ...] = ()
    received: Count = 0
    seen: tuple[str, ...] = ()

    @property
    def standing(self) -> Opinion | None:
        """The opinion that counts, if any does."""
        valid = [opinion for opinion in self.opinions if opinion.entities is not None]
        return max(valid, key=lambda opinion: (opinion.labelled_at, opinion.order), default=None)

    @property
    def awaits_label(self) -> bool:
        """Whether a label was requested and nobody has given one or skipped; a withdrawal leaves it awaited again."""
        if self.routed is None or not self.routed.label.requested:
            return False
        return not any(opinion.entities is not None or opinion.skipped for opinion in self.opinions)


class Joined(NamedTuple):
    """What one event led to.

    ``notes`` name what is worth counting: ``duplicate_result``, ``duplicate_feedback``, ``stale_revision``,
    ``disagreement``, ``skipped``, ``withdrawn``, ``withdrawn_unknown``, ``forgotten_labeler``, ``unknown_fields``.
    """

    state: JoinState
    example: LabelledExample | None = None
    notes: tuple[str, ...] = ()


NOTHING_KNOWN = JoinState()


def take_result(state: JoinState, routed: RoutedEvent, fields: Fields) -> Joined:
    """Take a query's result.

    Parameters
    ----------
    state : JoinState
        What is known of this query; ``NOTHING_KNOWN`` where nothing is.
    routed : RoutedEvent
        Of a workload in ``fields``.
    fields : mapping of workload to its fields

    Returns
    -------
    Joined
        With an example when a label has waited for this result.
    """
    if state.routed is not None:
        return Joined(state, None, ("duplicate_result",))
    following = state.model_copy(update={"routed": compact(routed)})
    return _tell(following, None, fields, ())


def take_feedback(state: JoinState, feedback: FeedbackEvent, arrived_at: datetime, fields: Fields) -> Joined:
    """Take what a labeler said.

    Parameters
    ----------
    state : JoinState
        What is known of this query; ``NOTHING_KNOWN`` where nothing is.
    feedback : FeedbackEvent
    arrived_at : datetime
        Stands in for a missing ``labelled_at``.
    fields : mapping of workload to its fields

    Returns
    -------
    Joined
        With an example when the result is known and the standing opinion changed.
    """
    identity = sha256(feedback.identity().encode()).hexdigest()[:_ID_CHARS]
    if identity in state.seen:
        return Joined(state, None, ("duplicate_feedback",))
    earlier = next((o for o in state.opinions if o.labeler == feedback.labeler), None)
    if earlier is not None and feedback.revision < earlier.revision:
        return Joined(state, None, ("stale_revision",))
    taken = Opinion(
        labeler=feedback.labeler,
        entities=None if feedback.retracted else feedback.entities,
        skipped=not feedback.retracted and feedback.entities is None,
        labelled_at=feedback.labelled_at or arrived_at,
        revision=feedback.revision,
        order=state.received + 1,
    )
    others = tuple(o for o in state.opinions if o.labeler != feedback.labeler)
    kept, notes = _bounded((*others, taken))
    following = state.model_copy(
        update={
            "opinions": tuple(sorted(kept, key=lambda o: (o.labeler is not None, o.labeler or ""))),
            "received": state.received + 1,
            "seen": (*state.seen, identity)[-MAX_SEEN:],
        }
    )
    notes += _remarks(feedback, taken, earlier, others)
    if state.routed is None:
        return Joined(following, None, notes)
    return _tell(following, state.standing, fields, notes)


def compact(routed: RoutedEvent) -> RoutedEvent:
    """Return the result without what the join does not need: metadata, costs, latencies, texts that nobody labels.

    Returns
    -------
    RoutedEvent
        Giving the same :meth:`~schemas.labelled.LabelledExample.from_events` as the whole one.
    """
    return routed.model_copy(
        update={
            # A label that is withdrawn has people asked again, for which they need the text.
            "text": routed.text if routed.label.requested else "",
            "small": _bare(routed.small),
            "large": _bare(routed.large),
            "cost": _NO_COST,
            "routed_by": "",
            "metadata": None,
        }
    )


def _bare(run: ModelRun | None) -> ModelRun | None:
    return None if run is None else ModelRun(model="", entities=run.entities, valid=run.valid)


def _bounded(opinions: tuple[Opinion, ...]) -> tuple[tuple[Opinion, ...], tuple[str, ...]]:
    if len(opinions) <= MAX_LABELERS:
        return opinions, ()
    first = min(opinions, key=lambda o: (o.labelled_at, o.order))
    return tuple(o for o in opinions if o is not first), ("forgotten_labeler",)


def _remarks(
    feedback: FeedbackEvent, taken: Opinion, earlier: Opinion | None, others: tuple[Opinion, ...]
) -> tuple[str, ...]:
    if feedback.retracted:
        known = earlier is not None and earlier.entities is not None
        return ("withdrawn",) if known else ("withdrawn_unknown",)
    if taken.entities is None:
        return ("skipped",)
    differs = any(o.entities is not None and not equal(o.entities, taken.entities) for o in others)
    return ("disagreement",) if differs else ()


def _tell(state: JoinState, told: Opinion | None, fields: Fields, notes: tuple[str, ...]) -> Joined:
    """Say what changed for the fit, which counts the opinion ``told`` as of now, or none."""
    stands = state.standing
    if stands is None and told is None:
        return Joined(state, None, notes)
    if stands is None:
        withdrawal = max(state.opinions, key=lambda o: o.order)
        return Joined(state, _example(state, told, fields, withdrawn_at=withdrawal.labelled_at), notes)
    if told is not None and told.order == stands.order:
        return Joined(state, None, notes)
    assert state.routed is not None
    wanted = fields[state.routed.workload]
    if any(name not in wanted for name in stands.entities or ()):
        notes = (*notes, "unknown_fields")
    return Joined(state, _example(state, stands, fields), notes)


def _example(
    state: JoinState, opinion: Opinion | None, fields: Fields, withdrawn_at: datetime | None = None
) -> LabelledExample:
    assert state.routed is not None
    assert opinion is not None
    feedback = FeedbackEvent(
        query_id=state.routed.query_id,
        entities=opinion.entities,
        labeler=opinion.labeler,
        labelled_at=withdrawn_at or opinion.labelled_at,
        retracted=withdrawn_at is not None,
    )
    wanted = fields[state.routed.workload]
    return LabelledExample.from_events(state.routed, feedback, fields=wanted, revision=state.received)
