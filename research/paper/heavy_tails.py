"""The paper's falsification regime (appendix B.5): what heavy-tailed uncertainty does to the cascade.

A seed flows in; costs, calibration errors and the fate of risky queries flow out, against an oracle that knows each
query's error probability. Assumption (ii) of theorem 1 holds by construction: the large model is right equally often on
all queries, so that nothing but the signal is at stake. A query has one pair to find: micro-F1 is the share of right
answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import expit

from research.paper.measures import LARGE_COST, calibration_error, micro_f1, paper_cost, sequential_cost
from research.paper.policies import fit_isotonic, fit_platt, fit_temperature
from research.paper.thresholds import Sweep
from research.paper.workloads import Answers, Floats, Workload

QUERIES = 40_000
LARGE_RIGHT = 0.95
TARGET = 0.90
_RISK_MEAN, _RISK_SPREAD = -1.6, 1.6
"""Of the logit of the small model's error probability: wrong on a quarter."""
_NOISE = {"margin": 1.5, "entropy": 2.5}
"""Spread of each signal about that logit; the entropy's is larger, since the paper finds it worse."""
RISKY = 0.8
"""Error probability above which a query counts as risky."""
_HIDDEN_RISK = 0.9
_STRETCH = 1.5
_FIGURES = (
    "small",
    "ucci_paper_cost",
    "ucci_sequential_cost",
    "ucci_saving",
    "ucci_sequential_saving",
    "entropy_over_ucci",
    "oracle_paper_cost",
    "ucci_over_oracle",
    "risky_ucci",
    "risky_oracle",
    "hidden_ucci",
    "hidden_oracle",
    "ece_isotonic",
    "ece_platt",
    "ece_temperature",
)


@dataclass(frozen=True, slots=True)
class Tail:
    """One regime.

    ``degrees``: degrees of freedom of Student's noise on both signals; infinite is the normal one, 1 is Cauchy's. All
    have the normal noise's quartiles. ``hidden``: share of queries with signals as if they were like all others, and an
    error probability of 0.9. ``stretched``: the logits of the signals are raised to the power 1.5, their sign kept:
    longer tails, the same order of queries.
    """

    title: str
    degrees: float = np.inf
    hidden: float = 0.0
    stretched: bool = False


TAILS = (
    Tail("normal noise"),
    Tail("the same, tails of u stretched", stretched=True),
    Tail("Student's noise, 3 degrees", 3.0),
    Tail("Student's noise, 1.5 degrees", 1.5),
    Tail("Cauchy's noise", 1.0),
    Tail("1 % hidden errors", hidden=0.01),
    Tail("3 % hidden errors", hidden=0.03),
    Tail("10 % hidden errors", hidden=0.10),
)


def tail_workload(tail: Tail, queries: int, rng: np.random.Generator) -> Workload:
    """Draw one workload.

    Returns with the further signals ``risk``, the true error probability, and ``hidden``, 1 for hidden errors. Regimes
    with one random state share their queries, apart from what the regime changes.
    """
    logits = _RISK_MEAN + _RISK_SPREAD * rng.normal(size=queries)
    ranks = {name: rng.uniform(size=queries) for name in _NOISE}
    chance = rng.uniform(size=(3, queries))
    scores = {name: logits + _NOISE[name] * _noise(ranks[name], tail.degrees) for name in _NOISE}
    hidden = chance[0] < tail.hidden
    risk = np.where(hidden, _HIDDEN_RISK, expit(logits))
    if tail.stretched:
        scores = {name: np.sign(values) * np.abs(values) ** _STRETCH for name, values in scores.items()}
    error = chance[1] < risk
    one = np.ones((queries, 1), dtype=np.int64)
    return Workload(
        tail.title,
        Answers((~error).astype(np.int64)[:, None], one),
        Answers((chance[2] < LARGE_RIGHT).astype(np.int64)[:, None], one),
        gold=one,
        error=error,
        signals={**{name: expit(values) for name, values in scores.items()}, "risk": risk, "hidden": hidden * 1.0},
        target=TARGET,
        fields=("answer",),
    )


def _noise(rank: Floats, degrees: float) -> Floats:
    """Return Student's noise with the normal distribution's quartiles."""
    if np.isinf(degrees):
        return np.asarray(stats.norm.ppf(rank))
    scale = stats.norm.ppf(0.75) / stats.t.ppf(0.75, degrees)
    return np.asarray(scale * stats.t.ppf(rank, degrees))


def figures(tail: Tail, queries: int, seed: int) -> dict[str, float]:
    """Return the figures of one draw; every threshold meets the target on the test set exactly.

    UCCI thresholds u itself, which is its map with ties broken by u.

    Returns costs and savings against the large model alone; ``…_over_…``: by how much the first costs more, as a share;
    ``risky_…``, ``hidden_…``: shares of these queries that were escalated (nan where there are none); ``ece_…``: over
    deciles of the test set.
    """
    workload = tail_workload(tail, queries, np.random.default_rng(seed))
    calibration, _, test = workload.split(seed)
    masks = {}
    for name, signal in (("ucci", "margin"), ("entropy", "entropy"), ("oracle", "risk")):
        score = test.signals[signal]
        curve = Sweep(score, test).curve()
        masks[name] = score > curve.threshold[curve.cheapest(test.target)]
    rate = {name: float(mask.mean()) for name, mask in masks.items()}
    cost = {name: float(paper_cost(rate[name])) for name in rate}
    sequential = float(sequential_cost(rate["ucci"]))
    groups = {"risky": test.signals["risk"] > RISKY, "hidden": test.signals["hidden"] > 0.0}
    caught = {
        f"{group}_{name}": float(masks[name][rows].mean()) if rows.any() else float("nan")
        for group, rows in groups.items()
        for name in ("ucci", "oracle")
    }
    maps = {"isotonic": fit_isotonic, "platt": fit_platt, "temperature": fit_temperature}
    return {
        "small": micro_f1(test, np.zeros(len(test), dtype=bool)),
        "ucci_paper_cost": cost["ucci"],
        "ucci_sequential_cost": sequential,
        "ucci_saving": 1.0 - cost["ucci"] / LARGE_COST,
        "ucci_sequential_saving": 1.0 - sequential / LARGE_COST,
        "entropy_over_ucci": cost["entropy"] / cost["ucci"] - 1.0,
        "oracle_paper_cost": cost["oracle"],
        "ucci_over_oracle": cost["ucci"] / cost["oracle"] - 1.0,
        **caught,
        **{
            f"ece_{name}": calibration_error(fit(calibration)(test.signals["margin"]), test.error)
            for name, fit in maps.items()
        },
    }


def regimes(repetitions: int, seed: int, queries: int = QUERIES) -> list[dict[str, Any]]:
    """Return mean and standard error of every figure, a regime each; all regimes share their seeds."""
    found = []
    for tail in TAILS:
        drawn = [figures(tail, queries, seed + number) for number in range(repetitions)]
        row: dict[str, Any] = {"title": tail.title}
        for name in _FIGURES:
            values = np.array([one[name] for one in drawn])
            row[name] = None if np.isnan(values).all() else float(values.mean())
            row[f"{name}_error"] = None if row[name] is None else float(values.std(ddof=1) / np.sqrt(repetitions))
        found.append(row)
    return found
