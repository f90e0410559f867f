"""The scores of the ordinary suite: what was routed and the oracle flow in, what operators complain of flows out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from research.drift.mess_score import wrongly_set_aside
from research.drift.oracle import LARGE_COST, Oracle, expected_micro_f1
from research.drift.score import TOLERANCE, before_change
from research.drift.simulate import Journal, Routed
from research.drift.streams import BLOCK, Stream

COLD_BLOCKS = 10
"""Judged after a cold start, from the first threshold on."""
_IN_A_ROW = 3
"""Blocks on target with which a policy has recovered."""


@dataclass(frozen=True)
class JudgeScore:
    """One policy on one stream.

    ``pol``, ``regret``: share of blocks on target from the first change on, or of the stream where nothing changes; and
    their mean cost over the oracle's, less 1. After a cold start: of the ten blocks from the first threshold on, if
    there is one. ``recovery``: mean over changes of the queries until the first of three blocks on target in a row;
    where there are none before the next change, until then. None where nothing changes. ``set_aside``: labels set aside
    at once beyond those that are not the truth, at worst. ``alarms``, ``false_alarms``: in 100,000 queries: of the
    stream, and of those before anything changes. ``drifted``: share of looks at the status in which it said "drifted";
    None for what has no status. ``audits``, ``audited``: audits opened, and labels asked of trusted people.
    ``first_threshold``: queries before it, after a cold start.
    """

    pol: float | None
    regret: float | None
    recovery: float | None
    set_aside: float
    alarms: float
    false_alarms: float
    drifted: float | None
    audits: int
    audited: int
    first_threshold: int | None = None


def judge_score(stream: Stream, routed: Routed, best: Oracle) -> JudgeScore:
    """Score one walk."""
    journal = routed.journal or Journal()
    met = expected_micro_f1(stream, routed.served_by_large) - best.reach >= -TOLERANCE
    paid = 1.0 + LARGE_COST * routed.large_ran
    cost = paid.reshape(-1, BLOCK).mean(axis=1)
    begins = [round(change * len(met)) for change in stream.family.changes]
    judged, first = slice(begins[0] if begins else 0, None), None
    if stream.family.mess is not None and stream.family.mess.cold:
        first = journal.published[0][0] if journal.published else len(stream)
        judged = slice(-(-first // BLOCK), -(-first // BLOCK) + COLD_BLOCKS)
    quiet, false_alarms = before_change(stream, routed.alarms)
    some = len(met[judged]) > 0
    return JudgeScore(
        pol=float(met[judged].mean()) if some else None,
        regret=float(cost[judged].mean() / best.cost[judged].mean() - 1.0) if some else None,
        recovery=recovery(met, begins),
        set_aside=float(wrongly_set_aside(routed).max(initial=0.0)),
        alarms=1e5 * len(routed.alarms) / len(stream),
        false_alarms=1e5 * sum(false_alarms.values()) / max(quiet, 1),
        drifted=float(np.mean(journal.drifted)) if journal.drifted else None,
        audits=journal.audits,
        audited=int(routed.audited.sum()),
        first_threshold=first,
    )


def recovery(met: NDArray[np.bool_], begins: list[int]) -> float | None:
    """Return the mean number of queries from a change to three blocks on target in a row.

    ``met``: ndarray of bool, shape (blocks,). ``begins``: blocks that begin with a change.

    Examples
    --------
    >>> recovery(np.array([True, False, True, False, True, True, True]), [1])
    6000.0
    """
    if not begins:
        return None
    found = []
    for begin, end in zip(begins, [*begins[1:], len(met)], strict=True):
        since = met[begin:end]
        runs = [at for at in range(len(since)) if since[at : at + _IN_A_ROW].all()]
        found.append(BLOCK * (runs[0] if runs else len(since)))
    return float(np.mean(found))
