"""Which traits moved between two sets of counts, most telling first, and in which segment.

Traits are ordered by how well a query shows whether it came before or after: the divergence of their shares, in nats
by query of the workload. A trait that moved only because a segment's share did comes behind that segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from recalibrator.fit.arrays import Bools, Floats, Ints
from recalibrator.fit.movement.decomposition import Effects, decompose
from recalibrator.fit.movement.dispersion import Dispersion, log_evidence
from recalibrator.fit.movement.evidence import discoveries, log_bayes_factor
from recalibrator.fit.movement.series_table import Counts, Series
from schemas.movement import GroupEffect, MovedCategory, MovedTrait, RateChange
from schemas.traffic import ANSWERS, SEGMENT

MATERIAL_SHARE = 0.02
"""Smaller changes of shares, as total variation, are no explanation of anything."""

MATERIAL_ESCALATION = 0.01
OF_LABELS = frozenset({ANSWERS, "labeler", "label_delay"})
"""Traits of labels rather than of queries."""

_MOSTLY = 0.6
_BEYOND_ITS_SHARE = 0.2
_RISING_SAYS_IT = 0.6
_PRIOR = 0.5
_SHOWN_TRAITS, _SHOWN_CATEGORIES, _SHOWN_EFFECTS = 8, 4, 12


class Compared(NamedTuple):
    """Counts before and after of every series.

    Parameters
    ----------
    series : sequence of Series
    categories : sequence of sequence of str
    before, after : ndarray, shape (series, categories, 2)
        Queries, and those that escalated.
    spread : Dispersion, shape (series, categories)
        By how much blocks differ more than by chance.
    whole : Floats
        Queries of the workload before and after, shape (2,).
    escalated : Floats
        Those of them that escalated, shape (2,).
    """

    series: Sequence[Series]
    categories: Sequence[Sequence[str]]
    before: Counts
    after: Counts
    spread: Dispersion
    whole: Floats
    escalated: Floats

    @property
    def queries(self) -> tuple[Floats, Floats]:
        """Queries by category before and after, shape (series, categories) each."""
        return self.before[..., 0].astype(np.float64), self.after[..., 0].astype(np.float64)


def shares(counts: Floats, size: Floats | None = None) -> Floats:
    """Return the shares of categories, zero where nothing was counted.

    Parameters
    ----------
    counts : ndarray, shape (..., categories)
    size : ndarray, shape (...), optional
        Their sum over categories, where it is known.

    Returns
    -------
    ndarray, shape (..., categories)
    """
    whole = counts.sum(axis=-1) if size is None else size
    found: Floats = counts / np.where(whole > 0.0, whole, 1.0)[..., None]
    return found


def material(before: Floats, after: Floats, sizes: tuple[Floats, Floats] | None = None) -> Bools:
    """Return where shares differ enough to matter.

    Parameters
    ----------
    before, after : ndarray, shape (..., categories)
    sizes : tuple of ndarray, shape (...), optional
        Their sums over categories, where these are known.

    Returns
    -------
    ndarray, shape (...)
    """
    size_before, size_after = (before.sum(axis=-1), after.sum(axis=-1)) if sizes is None else sizes
    both = (size_before > 0.0) & (size_after > 0.0)
    distance = np.abs(shares(after, size_after) - shares(before, size_before)).sum(axis=-1) / 2.0
    found: Bools = both & (distance >= MATERIAL_SHARE)
    return found


def information(compared: Compared) -> Floats:
    """Return how well each series separates before from after, in nats by query of the workload, shape (series,)."""
    before, after = compared.queries
    known = (before + after) > 0.0
    prior = np.where(known, _PRIOR, 0.0)
    p = np.where(known, shares(before + prior), 1.0)
    q = np.where(known, shares(after + prior), 1.0)
    divergence = np.where(known, q * np.log(q / p), 0.0).sum(axis=-1)
    found: Floats = np.maximum(0.0, divergence) * after.sum(axis=-1) / max(1.0, float(compared.whole[1]))
    return found


def moved_traits(compared: Compared, alpha: float) -> list[MovedTrait]:
    """Return the traits that moved.

    Parameters
    ----------
    compared : Compared
    alpha : float
        Bound of the false share, as in :func:`~recalibrator.fit.movement.evidence.discoveries`.
    """
    before, after = compared.queries
    evidence = log_evidence(log_bayes_factor(before, after), before, after, compared.spread)
    return named_traits(compared, discoveries(np.where(material(before, after), evidence, -np.inf), alpha))


def named_traits(compared: Compared, flagged: Bools) -> list[MovedTrait]:
    """Return the traits of the series that are flagged, most telling first; those that follow a segment come last.

    Parameters
    ----------
    compared : Compared
    flagged : ndarray, shape (series,)
    """
    telling = np.where(flagged, information(compared), 0.0)
    best: dict[str, int] = {}
    for at in np.argsort(-telling, kind="stable").tolist():
        if flagged[at]:
            best.setdefault(compared.series[at].trait, at)
    found = [_trait(compared, at, float(telling[at]), set(best)) for at in best.values()]
    return sorted(found, key=lambda one: one.follows is not None)[:_SHOWN_TRAITS]


def _trait(compared: Compared, at: int, telling: float, moved: set[str]) -> MovedTrait:
    series = compared.series[at]
    overall = _index(compared, Series(series.trait))
    at = at if overall is None or not _moved_at_all(compared, overall) else overall
    segment, value, follows = compared.series[at].segment, compared.series[at].value, None
    said = _categories(compared, at)
    if segment is None and not series.trait.startswith(SEGMENT):
        category = compared.categories[at].index(said[0].category)
        for name in sorted({one.segment for one in compared.series if one.segment is not None}):
            mostly, mix = _by_segment(compared, series.trait, category, at, name)
            if mix >= _MOSTLY and SEGMENT + name in moved:
                follows = follows or name
            elif mostly is not None and segment is None:
                segment, value = name, mostly
    return MovedTrait(
        trait=series.trait,
        segment=segment,
        value=value,
        is_confined=compared.series[at].segment is not None,
        categories=said,
        information=telling,
        escalation_explained=_explained(compared, at),
        follows=follows,
    )


def _index(compared: Compared, series: Series) -> int | None:
    return compared.series.index(series) if series in compared.series else None


def _moved_at_all(compared: Compared, at: int) -> bool:
    before, after = compared.queries
    return bool(material(before[at], after[at]))


def _categories(compared: Compared, at: int) -> tuple[MovedCategory, ...]:
    before, after = (shares(counts[at]) for counts in compared.queries)
    change = after - before
    order = np.argsort(-np.abs(change), kind="stable").tolist()
    rising = int(np.argmax(change))
    # What has come says more than what it has displaced.
    if change[rising] >= _RISING_SAYS_IT * float(np.abs(change).max()):
        order = [rising, *(one for one in order if one != rising)]
    names = compared.categories[at]
    return tuple(
        MovedCategory(category=names[one], before=float(before[one]), after=float(after[one]))
        for one in order[:_SHOWN_CATEGORIES]
        if one < len(names) and (before[one] > 0.0 or after[one] > 0.0)
    )


def _by_segment(compared: Compared, trait: str, category: int, overall: int, segment: str) -> tuple[str | None, float]:
    """Return the value within which most of a category's change happened, and what the mix of values explains of it."""
    name = compared.categories[overall][category]
    rows = [at for at, one in enumerate(compared.series) if one.trait == trait and one.segment == segment]
    if not rows:
        return None, 0.0
    places = [compared.categories[at].index(name) if name in compared.categories[at] else -1 for at in rows]
    sizes = [counts[rows].sum(axis=-1) for counts in compared.queries]
    hits = [
        np.array([0.0 if place < 0 else counts[at, place] for at, place in zip(rows, places, strict=True)])
        for counts in compared.queries
    ]
    effects = decompose(sizes[0], hits[0], sizes[1], hits[1])
    change = effects.change
    if change == 0.0:
        return None, 0.0
    part = (effects.within / change).tolist()
    weight = shares(sizes[0] + sizes[1])
    best = int(np.argmax(part))
    is_mostly = part[best] >= max(_MOSTLY, float(weight[best]) + _BEYOND_ITS_SHARE) and part[best] < 1.0 / _MOSTLY
    return compared.series[rows[best]].value if is_mostly else None, float(effects.composition.sum()) / change


def _explained(compared: Compared, at: int) -> float | None:
    """Return the effect of a series' changed shares on escalation, as a share of the change of escalation."""
    rates = compared.escalated / np.maximum(compared.whole, 1.0)
    change = float(rates[1] - rates[0])
    if abs(change) < MATERIAL_ESCALATION or compared.series[at].trait in OF_LABELS:
        return None
    # In a segment alone, the effect counts by the segment's share of all queries.
    share = 1.0 if compared.series[at].segment is None else float(compared.after[at, :, 0].sum() / compared.whole[1])
    return float(_escalation(compared, np.array([at]))[0].composition.sum()) * share / change


def _escalation(compared: Compared, rows: Ints) -> list[Effects]:
    return [
        decompose(
            *(counts[at, :, part].astype(np.float64) for counts in (compared.before, compared.after) for part in (0, 1))
        )
        for at in rows.tolist()
    ]


def escalation(compared: Compared) -> RateChange:
    """Return how escalation changed, and what each value of each segment adds to it."""
    rates = compared.escalated / np.maximum(compared.whole, 1.0)
    rows = np.array([at for at, one in enumerate(compared.series) if one.trait.startswith(SEGMENT)], dtype=np.intp)
    effects = [
        GroupEffect(
            group=compared.series[at].trait.removeprefix(SEGMENT),
            value=name,
            composition=float(found.composition[place]),
            within=float(found.within[place]),
        )
        for at, found in zip(rows.tolist(), _escalation(compared, rows), strict=True)
        for place, name in enumerate(compared.categories[at])
    ]
    effects.sort(key=lambda one: (-abs(one.composition + one.within), one.group, one.value))
    before, after = np.minimum(1.0, rates).tolist()
    return RateChange(before=before, after=after, effects=tuple(effects[:_SHOWN_EFFECTS]))
