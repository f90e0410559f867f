"""Somebody who may name queries tries to steer the fit: what his ids cost the others, with and without a secret draw.

He sends 4.8 % of the traffic: texts that the small model gets wrong, each with a true label, under ids that he has
searched offline so that the public hash explores and labels them all. Beside him stand the same texts under ids taken
at random, and the stream in which those places hold honest queries.

Example: python -m research.recorded.searched_ids
"""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import count, islice
from typing import NamedTuple

import numpy as np

from research.paper.tables import percent, signed, table
from research.recorded.policies import SAFETY, TARGET
from research.recorded.scoring import LARGE_COST, SMALL_COST
from research.recorded.service import Service
from research.recorded.simulate import simulate
from research.recorded.stream import EXPLORED, PHASES, WORKLOAD, Mask, Outcomes, Stream, draw_stream, query_id
from schemas.draws import drawn_as, uniform

QUERIES, SEEDS, SHARE = 12_000, range(11, 16), 0.048
KEYS = {"none": None, "secret": b"of this benchmark, 32 bytes long"}
IDS = ("no attacker", "random", "searched")


class Told(NamedTuple):
    """What became of the honest queries, and of the attacker's.

    ``escalated``, ``cost``: share of the honest queries for which the large model ran, and their mean cost by calls
    (sequential). ``labelled``: share of the attacker's queries whose label was asked for.
    """

    escalated: float
    cost: float
    labelled: float


def attacked(stream: Stream, his: Mask, ids: str, key: bytes | None, seed: int) -> Stream:
    """Return the stream with somebody's queries in his places, drawn as routers draw."""
    salt = f"{WORKLOAD}-{seed}"
    names = [query_id(row) for row in range(len(stream))]
    outcomes = stream.outcomes
    if ids != IDS[0]:
        pool = stream.pools[0][0]
        hard = np.flatnonzero(~pool.exact)
        taken = pool.take(np.random.default_rng([seed, 1]).choice(hard, size=int(his.sum())))
        columns = {name: getattr(outcomes, name).copy() for name in Outcomes.__slots__}
        for name, values in columns.items():
            values[his] = getattr(taken, name)
        outcomes = Outcomes(**columns)
        tried = (f"his-{number}" for number in count())
        wanted = (name for name in tried if ids == "random" or uniform(name, salt) < EXPLORED)
        for row, name in zip(np.flatnonzero(his).tolist(), islice(wanted, int(his.sum())), strict=True):
            names[row] = name
    return replace(stream, outcomes=outcomes, draw=np.array([uniform(drawn_as(name, key), salt) for name in names]))


def measure(ids: str, key: bytes | None, seed: int) -> Told:
    """Return what one stream came to."""
    stream = draw_stream(QUERIES, seed, PHASES[:1])
    his = np.random.default_rng([seed, 0]).uniform(size=QUERIES) < SHARE
    routed = simulate(Service(TARGET, SAFETY), attacked(stream, his, ids, key, seed))
    escalated = float(routed.ran[~his].mean())
    return Told(escalated, SMALL_COST + escalated * LARGE_COST, float(routed.labelled[his].mean()))


def main(seeds: list[int]) -> None:
    """Print a row for each kind of ids, without and with a key; costs against the same draws without an attacker."""
    rows = []
    for kind, key in KEYS.items():
        calm: list[float] = []
        for ids in IDS:
            told = [measure(ids, key, seed) for seed in seeds]
            calm = calm or [one.cost for one in told]
            more = [100.0 * (one.cost / before - 1.0) for one, before in zip(told, calm, strict=True)]
            rows.append(
                [
                    kind,
                    ids,
                    "" if ids == IDS[0] else percent(float(np.mean([one.labelled for one in told]))),
                    f"{np.mean([one.escalated for one in told]):.3f}",
                    f"{signed(float(np.mean(more)), 1)} % [{signed(min(more), 1)}, {signed(max(more), 1)}]",
                ]
            )
    print(table(("draw_key", "his ids", "his labelled", "honest: large model ran", "honest: cost"), rows))


if __name__ == "__main__":
    main([int(seed) for seed in sys.argv[1:]] or list(SEEDS))
