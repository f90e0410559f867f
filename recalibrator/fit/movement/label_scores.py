"""How micro-F1 of the answers served changed at a time, by labels: what fields, segments and traits explain of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from recalibrator.fit.arrays import Bools, Floats, Ints
from recalibrator.fit.data.label_columns import ROUTED_US, STANDING
from recalibrator.fit.data.label_table import LabelTable
from recalibrator.fit.data.label_traits import UNKNOWN
from recalibrator.fit.data.served_scores import LEAST_LABELS, group_scores, hits_and_size, inverse_propensity
from recalibrator.fit.movement.decomposition import Effects, decompose
from schemas.calibration import Z95
from schemas.labelled import LabelledExample
from schemas.movement import GroupEffect, MovedTrait, RateChange
from schemas.traffic import ANSWERS, FIELD, MARGIN, SEGMENT

_SHOWN_EFFECTS = 12


class _Sides(NamedTuple):
    """Labels before and after a time: inverse propensities, 0 where a label is of the other side or does not count."""

    before: Floats
    after: Floats


def answer_category(example: LabelledExample) -> str | None:
    """Return how right the answer served was: ``right``, ``partly`` or ``wrong``; None where the label does not say."""
    if not example.per_field:
        return None
    found = example.per_field.values()
    hits, size = sum(one.true_positives for one in found), sum(one.predicted + one.gold for one in found)
    return "right" if 2 * hits == size else "partly" if hits else "wrong"


class QualityChange:
    """The labels before and after a time.

    Parameters
    ----------
    labels : LabelTable
    since_us : int
        By routing time.
    """

    def __init__(self, labels: LabelTable, since_us: int) -> None:
        self._labels = labels
        table = labels.table
        counting, late = table[:, STANDING] > 0.0, table[:, ROUTED_US] >= since_us
        self._sides = _Sides(*(inverse_propensity(labels, counting & side) for side in (~late, late)))
        self._hits, self._size = hits_and_size(labels)
        one = np.zeros(len(labels), dtype=np.intp)
        self._whole = [group_scores(side, self._hits, self._size, one, 1) for side in self._sides]
        self.is_known = all(
            int(np.count_nonzero(side)) >= LEAST_LABELS and score.size[0] > 0.0
            for side, score in zip(self._sides, self._whole, strict=True)
        )

    @property
    def change(self) -> float:
        """micro-F1 after less that before."""
        before, after = self._whole
        return float(after.ratio[0] - before.ratio[0])

    @property
    def error(self) -> float:
        """Standard error of the change."""
        return float(np.hypot(*(score.error[0] for score in self._whole)))

    @property
    def is_sure(self) -> bool:
        """Whether the change is beyond its noise, so that shares of it mean something."""
        return self.is_known and abs(self.change) > Z95 * self.error

    def rate(self) -> RateChange | None:
        """Return micro-F1 before and after, taken apart by field and by each segment; None where labels are too few."""
        if not self.is_known:
            return None
        before, after = (min(1.0, float(score.ratio[0])) for score in self._whole)
        effects = [
            GroupEffect(group="field", value=name, composition=float(mixed), within=float(own))
            for name, mixed, own in zip(self._labels.fields, *self._by_field(), strict=True)
        ]
        segments = [name for name in self._labels.traits.names if name.startswith(SEGMENT)]
        effects += [one for name in segments for one in self._segment_effects(name)]
        effects.sort(key=lambda one: (-abs(one.composition + one.within), one.group, one.value))
        return RateChange(before=before, after=after, error=self.error, effects=tuple(effects[:_SHOWN_EFFECTS]))

    def explained(self, trait: MovedTrait) -> float | None:
        """Return what a trait explains of the change, as a share of it.

        A field, and its margin, explain what the field's own answers add; all answers within a segment, what the
        segment's add; every other trait, what the changed shares of its categories do. None where micro-F1 did not
        change beyond its noise, or labels do not know the trait.
        """
        if not self.is_sure:
            return None
        for prefix in (FIELD, MARGIN):
            if trait.trait.startswith(prefix):
                return self._field_effect(trait.trait.removeprefix(prefix))
        if trait.trait == ANSWERS:
            return self._answers_effect(trait)
        return self._mix_effect(trait)

    def _by_field(self) -> Effects:
        per_field = self._labels.per_field.astype(np.float64)
        sums = [np.einsum("n,nfk->fk", side, per_field) for side in self._sides]
        (size_before, hits_before), (size_after, hits_after) = (
            (one[:, 1] + one[:, 2], 2.0 * one[:, 0]) for one in sums
        )
        return decompose(size_before, hits_before, size_after, hits_after)

    def _by_category(self, codes: Ints, groups: int, inside: Bools) -> Effects:
        """Take the change of the labels that are inside apart by their category; unknown ones are none."""
        known = inside & (codes != UNKNOWN)
        before, after = (
            group_scores(np.where(known, side, 0.0), self._hits, self._size, codes, groups) for side in self._sides
        )
        return decompose(before.size, before.hits, after.size, after.hits)

    def _segment_effects(self, name: str) -> list[GroupEffect]:
        column = self._labels.traits.column(name, len(self._labels))
        if column is None:
            return []
        everywhere = np.ones(len(self._labels), dtype=np.bool_)
        effects = self._by_category(column.codes, len(column.categories) + 1, everywhere)
        pairs = zip(column.categories, effects.composition[1:].tolist(), effects.within[1:].tolist(), strict=True)
        return [
            GroupEffect(group=name.removeprefix(SEGMENT), value=value, composition=mixed, within=own)
            for value, mixed, own in pairs
            if mixed or own
        ]

    def _field_effect(self, field: str) -> float | None:
        if field not in self._labels.fields:
            return None
        effects, at = self._by_field(), self._labels.fields.index(field)
        return float(effects.composition[at] + effects.within[at]) / self.change

    def _answers_effect(self, trait: MovedTrait) -> float | None:
        if trait.segment is None:
            # That more answers are wrong is the change itself.
            return None
        found = [one for one in self._segment_effects(SEGMENT + trait.segment) if one.value == trait.value]
        return (found[0].composition + found[0].within) / self.change if found else None

    def _mix_effect(self, trait: MovedTrait) -> float | None:
        labels = self._labels
        column = labels.traits.column(trait.trait, len(labels))
        if column is None:
            return None
        inside, share = np.ones(len(labels), dtype=np.bool_), 1.0
        if trait.is_confined and trait.segment is not None and trait.value is not None:
            place = labels.traits.column(SEGMENT + trait.segment, len(labels))
            if place is None or trait.value not in place.categories:
                return None
            inside = place.codes == place.categories.index(trait.value) + 1
            after = self._sides.after * self._size
            share = float(after[inside].sum() / after.sum())
        effects = self._by_category(column.codes, len(column.categories) + 1, inside)
        return float(effects.composition.sum()) * share / self.change
