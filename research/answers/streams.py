"""Streams with real kinds of drift: a half of the kinds and a seed in, a stream and its offline labels out. Pure.

Phases of 4,000 to 30,000 queries: clean ones, and between them drifts of all sizes, one of them out of reach of the
target even for the large model, one of them met twice. The offline labels are drawn per seed; neither they nor texts
that were made from them come in the stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from research.answers.pairs import PAIRS
from research.answers.pool import KINDS, Answers, load_pool
from research.answers.shifts import CLEAN, SHIFTS
from research.recorded.scoring import BLOCK, Curve, Oracle
from research.recorded.stream import Integers, Outcomes, Phase, Stream, drawn_from

OFFLINE = (1_000, 2_000, 4_000)
LENGTHS = (4_000, 6_000, 10_000, 16_000, 30_000)
DRIFTS = 5
_OF_TEXTS = ("typos", "new_names", "longer", "upper", "mix")
_SHARES = {True: (0.1, 0.25, 0.5, 1.0), False: (0.3, 1.0)}
"""Of the queries, where texts drift and where a model does: one in the course of a rollout, or everywhere."""


@dataclass(frozen=True)
class Judged:
    """A stream with all that policies start from and are scored by.

    ``oracles``: by phase, over all draws from the pool.
    """

    pair: str
    stream: Stream
    offline: Outcomes
    target: float
    oracles: tuple[Oracle, ...]

    @property
    def kinds(self) -> list[str]:
        """Kind of drift of each phase."""
        return [phase.shift.partition("/")[0] for phase in self.stream.phases]


def oracle_of(clean: Outcomes, shifted: Outcomes, share: float, target: float) -> Oracle:
    """Return the cheapest threshold on a mix of clean and shifted queries, all outcomes known."""
    curves = Curve(clean), Curve(shifted)
    known = np.concatenate([curve.ranked[np.isfinite(curve.ranked)] for curve in curves])
    thresholds = np.concatenate(([-1.0], np.unique(known)))
    parts = (1.0 - share) * curves[0].parts(thresholds, 0.0) + share * curves[1].parts(thresholds, 0.0)
    f1 = parts[:, 0] / parts[:, 1]
    feasible = bool((f1 >= target).any())
    goal = target if feasible else float(f1.max())
    threshold = float(thresholds[np.flatnonzero(f1 >= goal)[-1]])
    escalated = (1.0 - share) * clean.above(threshold).mean() + share * shifted.above(threshold).mean()
    return Oracle(threshold, goal, feasible, float(escalated))


class Drawn(NamedTuple):
    """The offline labels of a stream, and what is left for it.

    ``bases``: the clean queries that are offline: no text that was made from one comes. ``clean``: the others.
    """

    offline: Outcomes
    bases: Integers
    clean: Outcomes


def draw_offline(answers: Answers, rng: np.random.Generator) -> Drawn:
    """Draw the offline labels out of the clean queries."""
    order = rng.permutation(len(answers.clean))
    offline = answers.clean.take(order[: rng.choice(OFFLINE)])
    bases = answers.base[offline.recording]
    return Drawn(offline, bases, answers.without(f"{CLEAN}/base", bases))


def oracles_of(
    phases: Sequence[Phase], pools: Sequence[tuple[Outcomes, Outcomes]], target: float
) -> tuple[Oracle, ...]:
    """Return the oracle of each phase, whose clean and shifted queries come from its pools."""
    return tuple(oracle_of(*both, phase.share, target) for both, phase in zip(pools, phases, strict=True))


def draw_judged(half: str, seed: int, *, scale: float = 1.0, labels: float = 1.0, drifts: int = DRIFTS) -> Judged:
    """Draw a stream.

    ``half``: ``tuning`` or ``unseen``: whose kinds of drift come. ``seed``: pairs take turns by it. ``scale``: of the
    phases' lengths. ``labels``: share of the usual labels that is asked for; the queries are the same for each.
    """
    pool = load_pool()
    names = [name for name in PAIRS if name in pool]
    pair = names[seed % len(names)]
    answers, target, rng = pool[pair], PAIRS[pair].target, np.random.default_rng(seed)
    offline, bases, clean = draw_offline(answers, rng)
    chosen = _drawn_drifts(answers, clean, half, target, drifts, rng)
    phases = [Phase("clean", f"{CLEAN}/base")]
    for phase in chosen:
        phases += [phase, Phase("clean again", f"{CLEAN}/base")]
    pools = [(clean, answers.without(phase.shift, bases)) for phase in phases]
    lengths = [max(2 * BLOCK, int(scale * rng.choice(LENGTHS)) // BLOCK * BLOCK) for _ in phases]
    stream = drawn_from(pools, phases, lengths, seed, rng, labels=labels)
    return Judged(pair, stream, offline, target, oracles_of(phases, pools, target))


def draw_quiet(seed: int, queries: int) -> Judged:
    """Draw a stream in which nothing changes; pairs take turns by seed."""
    pool = load_pool()
    names = [name for name in PAIRS if name in pool]
    pair = names[seed % len(names)]
    answers, target, rng = pool[pair], PAIRS[pair].target, np.random.default_rng(seed)
    offline, _, clean = draw_offline(answers, rng)
    stream = drawn_from([(clean, clean)], [Phase("clean", f"{CLEAN}/base")], [queries], seed, rng)
    return Judged(pair, stream, offline, target, (oracle_of(clean, clean, 0.0, target),))


def _drawn_drifts(
    answers: Answers, clean: Outcomes, half: str, target: float, drifts: int, rng: np.random.Generator
) -> list[Phase]:
    """Draw drifts of a half, the last but one out of reach and the last one known already."""
    within: list[Phase] = []
    beyond: list[Phase] = []
    for phase in drifts_of(answers, half):
        is_feasible = oracle_of(clean, answers.by_shift[phase.shift], phase.share, target).feasible
        (within if is_feasible else beyond).append(phase)
    by_kind = sorted_by_kind(within)
    kinds = rng.permutation(list(by_kind))
    drawn = [one_of(by_kind[kind], rng) for kind in kinds[: drifts - 2]]
    return [*drawn, one_of(beyond or within, rng), one_of(drawn, rng)]


def drifts_of(answers: Answers, half: str) -> list[Phase]:
    """Return all drifts of a half that a pair has answers under, in each size and share of the queries."""
    return [
        Phase(f"{share:.0%} {shift.name}", shift.name, share)
        for shift in SHIFTS
        if shift.kind in KINDS[half] and shift.name in answers.by_shift
        for share in _SHARES[shift.kind in _OF_TEXTS]
    ]


def sorted_by_kind(phases: Iterable[Phase]) -> dict[str, list[Phase]]:
    """Return phases by their kind of drift, the kinds in alphabetical order."""
    by_kind: dict[str, list[Phase]] = {}
    for phase in phases:
        by_kind.setdefault(phase.shift.partition("/")[0], []).append(phase)
    return dict(sorted(by_kind.items()))


def one_of(phases: Sequence[Phase], rng: np.random.Generator) -> Phase:
    """Draw one of some phases."""
    return phases[int(rng.integers(len(phases)))]
