"""What moved, as the status says it: since when, in which traits and segments, and how much each explains."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from schemas.event import Count, Flag, Many, NonNegative, Part, Probability, QueryId, Real, Timestamp
from schemas.traffic import CategoryName, TraitName


class MovedCategory(Part):
    """One category of a trait: its share of the queries before and after; of labels where these are counted."""

    category: CategoryName
    before: Probability
    after: Probability


class MovedTrait(Part):
    """A trait whose categories have other shares than before.

    Parameters
    ----------
    trait : str
        Such as ``field:camera``, ``words``, ``language`` or ``segment:source``.
    segment, value : str or None
        The segment to which most of its change is due; null: in none more than in others.
    is_confined : bool
        Whether it was seen to move in that segment alone; all figures are of the segment's queries then.
    categories : tuple of MovedCategory
        The one that says it best first, then by how much they moved.
    information : float
        By how much the categories tell a query after from one before: divergence in nats, by query of the workload.
    escalation_explained : float or None
        The effect of the changed shares as a share of the change in escalation (Kitagawa); null where escalation hardly
        changed. It can exceed 1 or be negative, where other effects go against it.
    micro_f1_explained : float or None
        The same of the change in micro-F1, by labels: of a field or its margin, what that field's answers add; of
        ``answers``, what those of the segment do. Null where micro-F1 did not change beyond its noise, or where labels
        do not know the trait.
    follows : str or None
        The segment whose changed mix explains most of this trait's change.
    """

    trait: TraitName
    segment: TraitName | None = None
    value: CategoryName | None = None
    is_confined: Flag = False
    categories: Annotated[Many[MovedCategory], Field(min_length=1)]
    information: NonNegative
    escalation_explained: Real | None = None
    micro_f1_explained: Real | None = None
    follows: TraitName | None = None


class GroupEffect(Part):
    """What one group of queries adds to the change of a rate: by its share, and by its own rate (Kitagawa).

    Parameters
    ----------
    group, value : str
        A segment's name and one of its values; of micro-F1 also ``field`` and a field's name.
    composition, within : float
        In the unit of the rate; over all values of a group, both together are the change.
    """

    group: TraitName
    value: str
    composition: Real
    within: Real


class RateChange(Part):
    """A rate before and after, and what it is made of.

    Parameters
    ----------
    error : float or None
        Standard error of the change; null where all queries are counted.
    effects : tuple of GroupEffect
        The largest first.
    """

    before: Probability
    after: Probability
    error: NonNegative | None = None
    effects: Many[GroupEffect] = ()


class Movement(Part):
    """One time at which something moved.

    Parameters
    ----------
    sentence : str
        What people read first.
    since, noticed_at : datetime
        When the first block of queries that differ began, and when they were enough to say so.
    is_settled : bool
        Whether the figures are final, and later queries are compared with those after.
    queries_before, queries_after : int
        Behind the figures.
    traits : tuple of MovedTrait
        What moved, most telling first.
    escalation : RateChange
        By segment.
    micro_f1 : RateChange or None
        Of the answers served, by recent labels, by field and by segment; null where too few labels are from after.
    examples_before, examples_after : tuple of str
        Ids of queries without and with what moved first, drawn by a hash.
    """

    sentence: Annotated[str, Field(min_length=1)]
    since: Timestamp
    noticed_at: Timestamp
    is_settled: Flag = False
    queries_before: Count
    queries_after: Count
    traits: Annotated[Many[MovedTrait], Field(min_length=1)]
    escalation: RateChange
    micro_f1: RateChange | None = None
    examples_before: Many[QueryId] = ()
    examples_after: Many[QueryId] = ()


class MovementStatus(Part):
    """What the monitors beside the drift detectors have seen; none of them moves a threshold.

    Parameters
    ----------
    sentence : str
        The latest movement, or that nothing moved.
    series : int
        Under watch.
    is_watching : bool
        Whether enough queries are known to compare with.
    movements : tuple of Movement
        The latest, newest first.
    """

    sentence: Annotated[str, Field(min_length=1)]
    series: Count = 0
    is_watching: Flag = False
    movements: Many[Movement] = ()
