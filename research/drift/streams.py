"""One stream: a family and a seed flow in, columns of queries, labels and expectations flow out.

The same family, seed and length give the same columns; policies see only what :mod:`research.drift.simulate` hands
them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from research.drift.families import BY_NAME
from research.drift.family import Family
from research.drift.mess import BLOCK
from research.drift.world import Answers, Conditions, chances, difficulty, draw

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SECONDS_A_QUERY = 0.1
MEAN_DELAY_S = 200.0
_AUDIT_STREAM = 1
"""A stream of chance of its own, which leaves all other draws as they were."""
_BURST_STREAM = 3
_BURST_QUERIES, _BURST_SPREAD = 200, 0.1
OFFLINE_QUERIES = 2 * BLOCK
_ROUTERS = 3


@dataclass(frozen=True)
class Stream:
    """Queries in the order in which they come, shape (queries,) each.

    ``at_s``, ``label_at_s``: when a query comes, and when its label would if asked for (infinite: never), in seconds
    from the start. ``u``: uncertainty, in (0, 1). ``draw``: uniform; a query is explored below one probability and
    labelled below a larger one. ``audit_draw``: uniform, apart from all else; a query that both models answer is
    audited below some probability. ``truth``: what both models answered. ``told``: the same as labelers tell it.
    ``expected``: ndarray, shape (4, queries); e[gold], E[small hits], E[large hits] and P(small wrong), given u and all
    that is known of the world.
    """

    family: Family
    seed: int
    at_s: Floats
    label_at_s: Floats
    u: Floats
    draw: Floats
    audit_draw: Floats
    truth: Answers
    told: Answers
    expected: Floats

    def __len__(self) -> int:
        return len(self.u)

    @property
    def chance(self) -> list[int]:
        """Seeds of what else is drawn for this stream, apart from its columns."""
        return [self.seed, *self.family.name.encode()]

    @property
    def clock_s(self) -> Floats:
        """How far the clock of each query's router is ahead, in seconds, as the core gets to see it."""
        ahead = np.zeros(len(self))
        if self.family.mess is not None and self.family.mess.clock is not None:
            clock = self.family.mess.clock
            first, end = clock.spell.span(len(self))
            ahead[first:end:_ROUTERS] = clock.seconds
        return ahead

    def calm(self) -> Stream:
        """Return the same queries with healthy servers and honest labelers."""
        mess = self.family.mess
        return replace(self, family=replace(self.family, mess=None if mess is None else mess.calm()))


def stream(name: str, seed: int, queries: int) -> Stream:
    """Draw one stream.

    ``name``: of the family. ``queries``: A multiple of ``BLOCK``.

    Raises ValueError if ``queries`` is not a positive multiple of ``BLOCK``.
    """
    if queries <= 0 or queries % BLOCK:
        raise ValueError(f"queries: must be a positive multiple of {BLOCK} (got {queries})")
    family = BY_NAME[name]
    rng = np.random.default_rng([seed, *name.encode()])
    progress = np.arange(queries) / queries
    conditions = Conditions.of(queries, **family.world(progress))
    gap_s = SECONDS_A_QUERY / family.rate(progress)
    if family.mess is not None and family.mess.pause is not None:
        pause = family.mess.pause
        gap_s[[round(share * queries) for share in pause.at]] += pause.seconds
    return _drawn(rng, family, seed, progress, conditions, np.cumsum(gap_s))


def offline(seed: int) -> Stream:
    """Draw the labelled set that every policy starts from: the recorded world, before the stream, told truly."""
    rng = np.random.default_rng([seed, 0])
    family, queries = BY_NAME["stationary"], OFFLINE_QUERIES
    progress = np.zeros(queries)
    at_s = -SECONDS_A_QUERY * np.arange(queries, 0, -1, dtype=np.float64)
    return _drawn(rng, family, seed, progress, Conditions.of(queries), at_s)


def _drawn(
    rng: np.random.Generator, family: Family, seed: int, progress: Floats, conditions: Conditions, at_s: Floats
) -> Stream:
    queries, labelers = len(progress), family.labelers
    apart = np.random.default_rng([seed, _BURST_STREAM])
    seen = _in_bursts(apart, difficulty(rng, conditions), conditions.burst)
    muted = apart.uniform(size=queries) < conditions.mute
    lost = rng.uniform(size=queries) < conditions.lost
    behind_seen = chances(seen, conditions)
    mean = _block_means(behind_seen.expected())
    place = np.where(lost, _shuffled_in_blocks(rng, seen), seen)
    truth = draw(rng, chances(place, conditions))
    logit = seen * np.exp(conditions.stretch) + conditions.offset
    delay_s = rng.exponential(MEAN_DELAY_S, queries) * labelers.slower(progress)
    comes = rng.uniform(size=queries) < labelers.answered(progress)
    return Stream(
        family=family,
        seed=seed,
        at_s=at_s,
        label_at_s=np.where(comes, at_s + delay_s, np.inf),
        u=np.where(muted, 0.0, 1.0 / (1.0 + np.exp(-logit))),
        draw=rng.uniform(size=queries),
        audit_draw=np.random.default_rng([seed, _AUDIT_STREAM]).uniform(size=queries),
        truth=truth,
        told=_told(rng, truth, labelers.careless(progress), labelers.flattering(progress)),
        expected=np.where(muted, mean, (1.0 - conditions.lost) * behind_seen.expected() + conditions.lost * mean),
    )


def _in_bursts(rng: np.random.Generator, places: Floats, share: Floats) -> Floats:
    """Return difficulties of which, in so many runs of 200 queries, all are nearly that of the first."""
    run = np.arange(len(places)) // _BURST_QUERIES
    first = run * _BURST_QUERIES
    alike = rng.uniform(size=len(places))[first] < share[first]
    return np.where(alike, places[first] + rng.normal(0.0, _BURST_SPREAD, len(places)), places)


def _block_means(expected: Floats) -> Floats:
    """Return for each query the mean over its block: what is expected when u says nothing."""
    return np.repeat(expected.reshape(len(expected), -1, BLOCK).mean(axis=2), BLOCK, axis=1)


def _shuffled_in_blocks(rng: np.random.Generator, values: Floats) -> Floats:
    return rng.permuted(values.reshape(-1, BLOCK), axis=1).reshape(-1)


def _told(rng: np.random.Generator, truth: Answers, careless: Floats, flattering: Floats) -> Answers:
    """Return the counts as labelers see them.

    A careless label misnames one gold pair, which each answer that held it then lacks. A flattering one takes the
    small answer for gold, of which the large one then lacks what the small one had wrong.
    """
    some = truth.gold > 0
    careless_hit = some & (rng.uniform(size=len(careless)) < careless)
    small, large = truth.small - careless_hit, truth.large - careless_hit
    flattered = some & (rng.uniform(size=len(flattering)) < flattering)
    differing = np.maximum(1, np.maximum(truth.gold - truth.small, truth.gold - truth.large))
    small = np.where(flattered, truth.gold, small)
    large = np.where(flattered, np.where(truth.agree, truth.gold, truth.gold - differing), large)
    return Answers(truth.gold, np.maximum(small, 0), np.maximum(large, 0), truth.agree)


__all__ = ["BLOCK", "Stream", "offline", "stream"]
