"""Policies at several budgets of labels: seeds in, one row a policy, budget and stream out."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from threadpoolctl import threadpool_limits

from research.answers.experiment import figures_of
from research.answers.pairs import PAIRS
from research.answers.policies import ENTRIES, MARGINS, SAFETY, offline_labels, static
from research.answers.scoring import row_of
from research.answers.scoring import score as score_answers
from research.answers.streams import Judged, draw_judged
from research.drift.oracle import oracle
from research.drift.policies.ordinary import ACI_MARGIN, ACI_STEP, STATIC_MARGINS, FixedRate
from research.drift.policies.ours import Ours
from research.drift.policies.ucci_router import Static
from research.drift.policies.windowed import AdaptiveConformal
from research.drift.score import score
from research.drift.simulate import Policy, walk
from research.drift.streams import offline, stream
from research.recorded.service import Service
from research.recorded.simulate import Policy as AnswersPolicy
from research.recorded.simulate import simulate
from schemas.calibration import LabelShares

Row = dict[str, Any]

BUDGETS = (0.08, 0.02, 0.005, 0.002, 0.0)
"""Labels a query."""
FRONTIER_BUDGETS, SAFETIES = (0.08, 0.016), (0.4, 0.65, 1.0, 1.5)
"""Where a fifth of the labels is held against all of them, at several margins."""
FAMILIES = ("small_abrupt", "recurring", "signal_lost", "large_abrupt", "prior", "both_abrupt")
QUERIES = 120_000
_USUAL = 0.05 * 2.0 / 3.0 + 0.10 / 3.0
"""Labels a query where a third escalates, by the usual shares."""


def on_answers(seed: int, *, frontier: bool = False, scale: float = 1.0) -> Iterator[Row]:
    """Walk one stream of recorded answers; with ``frontier`` by our margins at two budgets alone."""
    with threadpool_limits(1):
        judged = draw_judged("tuning", seed, scale=scale)
        played = partial(_played, seed=seed)
        for budget in FRONTIER_BUDGETS if frontier else BUDGETS:
            for safety in SAFETIES if frontier else (SAFETY,):
                made = Service(
                    judged.target,
                    safety,
                    fields=PAIRS[judged.pair].fields,
                    offline=offline_labels(judged.offline),
                    budget=budget,
                )
                yield {"policy": "service", "labels": budget, "safety": safety, **played(made, judged)}
            if not frontier:
                asked = draw_judged("tuning", seed, scale=scale, labels=budget / _USUAL)
                yield {"policy": "aci", "labels": budget, **played(ENTRIES["aci"].make(asked), asked)}
        if not frontier:
            yield {"policy": "fixed_rate", "labels": None, **played(ENTRIES["fixed_rate"].make(judged), judged)}
            for margin in MARGINS:
                made_static = static(judged, margin)
                yield {"policy": "static", "labels": None, "margin": margin, **played(made_static, judged)}


def _played(policy: AnswersPolicy, judged: Judged, *, seed: int) -> Row:
    figures = figures_of(row_of(score_answers(simulate(policy, judged.stream), judged), judged))
    return {"seed": seed, "on_target": figures["on_target"], "regret": figures["regret"]}


class Asking(AdaptiveConformal):
    """The conformal controller with so many labels a query, a third of which is taken to escalate."""

    def __init__(self, budget: float) -> None:
        super().__init__(ACI_MARGIN, ACI_STEP)
        self.label_shares = LabelShares(0.75 * budget, 1.5 * budget)
        self.exploration = 0.0


def on_drift(family: str, seed: int, queries: int = QUERIES) -> Iterator[Row]:
    """Walk one synthetic stream."""
    with threadpool_limits(1):
        drawn, start = stream(family, seed, queries), offline(seed)
        best = oracle(drawn)

        def walked(policy: Policy) -> Row:
            found = score(drawn, walk(drawn, start, policy), best)
            return {"family": family, "seed": seed, "on_target": found.pol, "regret": found.regret}

        for budget in BUDGETS:
            yield {"policy": "service", "labels": budget, **walked(Ours(labels=budget))}
            yield {"policy": "aci", "labels": budget, **walked(Asking(budget))}
        fixed = FixedRate()
        fixed.exploration = 0.0
        yield {"policy": "fixed_rate", "labels": None, **walked(fixed)}
        for margin in (0.0, *STATIC_MARGINS):
            yield {"policy": "static", "labels": None, "margin": margin, **walked(Static(margin))}
