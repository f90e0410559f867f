"""How often a labeler agrees with the other labelers of a query, and with both models where these agree.

For people alone: no estimate rests on these counts. They add up, over queries, partitions and machines.
"""

from __future__ import annotations

from collections.abc import Iterator

from recalibrator.join.query_state import Opinion, QueryState, Rules
from recalibrator.join.row_content import reduced
from schemas.entities import Entities, equal
from schemas.status import LabelerCounts


def count_agreement(before: QueryState, after: QueryState, rules: Rules) -> Iterator[tuple[str | None, LabelerCounts]]:
    """Yield (labeler, counts) of the opinions that became joined to a result between two states of a query."""
    if after.routed is None or not after.opinions or after is before:
        return
    if after.routed.workload not in rules:
        return
    known = set() if before.routed is None else {opinion.order for opinion in before.opinions}
    fresh = [opinion for opinion in after.opinions if opinion.order not in known]
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
    return LabelerCounts(
        labels=one.labels + other.labels,
        skipped=one.skipped + other.skipped,
        compared=one.compared + other.compared,
        agreeing=one.agreeing + other.agreeing,
        unanimous=one.unanimous + other.unanimous,
        confirmed=one.confirmed + other.confirmed,
        last_at=max((at for at in (one.last_at, other.last_at) if at is not None), default=None),
    )
