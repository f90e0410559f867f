"""Short streams that drift once: a name and a seed give a stream and its offline labels. Pure.

6,000 clean queries, then 6,000 under one drift. Two drifts are named and come from the demo's recordings. The others
are drawn by pair of models out of a half of the kinds of drift, among those under which the target is in reach, and
6,000 clean queries follow them. The offline labels are drawn per seed and never come in the stream.
"""

from __future__ import annotations

import numpy as np

from research.answers.pairs import PAIRS, PHOTO
from research.answers.pool import load_pool
from research.answers.shifts import CLEAN
from research.answers.streams import Judged, draw_offline, drifts_of, one_of, oracle_of, oracles_of, sorted_by_kind
from research.recorded.stream import Outcomes, Phase, drawn_from, recorded

PHASE_QUERIES = 6_000
MEAN_DELAY = 500.0
"""Queries that pass until a label comes, on average."""

USUAL_LABELS = 0.06
"""Share of the queries that is labelled by the usual shares, where a fifth of the queries escalates."""

NAMED = {
    "typos": Phase("25% typos", "typos", 0.25),
    "new_names": Phase("10% new names", "new_names", 0.10),
}
NAMED_OFFLINE = 1_000
_DRAWN = "drawn_"
STREAMS = (*NAMED, *(f"{_DRAWN}{pair}" for pair in PAIRS))


def draw_short(
    name: str, seed: int, *, half: str = "tuning", labels: float = USUAL_LABELS, queries: int = PHASE_QUERIES
) -> Judged:
    """Draw a stream.

    ``name``: one of ``STREAMS``. ``half``: ``tuning`` or ``unseen``: whose kinds of drift are drawn; the named drifts
    have no halves. ``labels``: share of the queries that is labelled, about; the queries are the same for each.
    ``queries``: of each phase.
    """
    rng = np.random.default_rng(seed)
    if name in NAMED:
        pair = PHOTO.name
        offline, phases, pools = _named(NAMED[name], rng)
    else:
        pair = name.removeprefix(_DRAWN)
        offline, phases, pools = _drawn(pair, half, seed, rng)
    target = PAIRS[pair].target
    stream = drawn_from(
        pools,
        phases,
        [queries] * len(phases),
        seed,
        rng,
        mean_delay=MEAN_DELAY,
        labels=labels / USUAL_LABELS,
    )
    return Judged(pair, stream, offline, target, oracles_of(phases, pools, target))


_Drawn = tuple[Outcomes, list[Phase], list[tuple[Outcomes, Outcomes]]]
"""Offline labels, phases, and of each phase what its clean and its shifted queries are drawn from."""


def _named(drift: Phase, rng: np.random.Generator) -> _Drawn:
    every_clean = recorded()["none"]
    order = rng.permutation(len(every_clean))
    offline = every_clean.take(order[:NAMED_OFFLINE])
    clean = every_clean.take(order[NAMED_OFFLINE:])
    phases = [Phase("clean"), drift]
    return offline, phases, [(clean, clean), (clean, recorded()[drift.shift])]


def _drawn(pair: str, half: str, seed: int, rng: np.random.Generator) -> _Drawn:
    """Draw a drift with the target in reach; the kinds that have one take turns by seed."""
    answers = load_pool()[pair]
    target = PAIRS[pair].target
    offline, bases, clean = draw_offline(answers, rng)
    by_kind = sorted_by_kind(
        drift
        for drift in drifts_of(answers, half)
        if oracle_of(clean, answers.without(drift.shift, bases), drift.share, target).feasible
    )
    kinds = list(by_kind)
    drift = one_of(by_kind[kinds[seed % len(kinds)]], rng)
    phases = [Phase("clean", f"{CLEAN}/base"), drift, Phase("clean again", f"{CLEAN}/base")]
    return offline, phases, [(clean, clean), (clean, answers.without(drift.shift, bases)), (clean, clean)]
