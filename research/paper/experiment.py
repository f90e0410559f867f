"""The paper's protocol on one workload: fit on 30 %, choose thresholds on 20 %, route the other 50 % (section 6.1).

A workload and a seed flow in; every row of the paper's tables flows out as plain numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from research.paper import diagnostics, published
from research.paper.intervals import interval, rates_at, routings
from research.paper.measures import LARGE_COST, field_f1, micro_f1, paper_cost, sequential_cost
from research.paper.policies import TITLES, Policy, fit_policies
from research.paper.workloads import Floats, Mask, Workload

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is repeated.

    ``rounds``: bootstrap rounds with routings as they are. ``matched_rounds``: bootstrap rounds in which every
    threshold is chosen anew. ``splits``: random splits over which the whole protocol is repeated.
    """

    rounds: int
    matched_rounds: int
    splits: int


FULL = Effort(rounds=1_000, matched_rounds=300, splits=100)
QUICK = Effort(rounds=100, matched_rounds=20, splits=5)


def run(workload: Workload, effort: Effort, seed: int) -> dict[str, Any]:
    """Run the experiment on one workload.

    Returns ``at_target``, ``at_budget``, ``at_ucci_cost``, ``at_paper_target``: rows of table 2; ``matched``: costs
    with every threshold chosen on the test set; ``ratios``: table 3; ``fields``: table 4; ``calibration``, ``signals``,
    ``assumption``: section 6.3; ``splits``: the protocol over many random splits.
    """
    parts = workload.split(seed)
    calibration, validation, test = parts
    policies = fit_policies(calibration, seed)
    masks = {policy.name: _at_target(policy, validation, test, workload.target) for policy in policies}
    masks |= _single_models(len(test))
    budget = published.escalation_rate(published.BUDGET)
    own = float(masks["ucci"].mean())
    within = {
        name: {policy.name: _within(policy, validation, test, rate) for policy in policies}
        for name, rate in (("at_budget", budget), ("at_ucci_cost", own))
    }
    return {
        "queries": {"calibration": len(calibration), "validation": len(validation), "test": len(test)},
        "target": workload.target,
        "at_target": rows(test, masks, workload.target, effort.rounds, seed),
        **{name: rows(test, found, workload.target, effort.rounds, seed) for name, found in within.items()},
        "at_paper_target": _other_target(policies, validation, test, effort, seed),
        "matched": _matched(policies, test, effort, seed),
        "ratios": [_ratio(ratio, float(masks["ucci"].mean())) for ratio in published.RATIOS],
        "fields": _fields(test, masks["ucci"]),
        "calibration": diagnostics.calibration_methods(calibration, validation, test, effort.rounds, seed),
        "signals": diagnostics.signals(validation, test),
        "assumption": diagnostics.large_on_escalated(test, masks["ucci"], effort.rounds, seed),
        "smallest_theta": diagnostics.smallest_theta(calibration, validation),
        "splits": _splits(workload, effort.splits, seed),
        "curves": diagnostics.curves(policies, test),
        "reliability": diagnostics.diagrams(calibration, test),
    }


def _single_models(queries: int) -> dict[str, Mask]:
    return {"large": np.ones(queries, dtype=bool), "small": np.zeros(queries, dtype=bool)}


def _at_target(policy: Policy, validation: Workload, test: Workload, target: float) -> Mask:
    """Route the test set by the cheapest threshold that meets the target on the validation set."""
    curve = policy.sweep(validation).curve()
    return policy.escalate(test, float(curve.threshold[curve.cheapest(target)]))


def _within(policy: Policy, validation: Workload, test: Workload, rate: float) -> Mask:
    """Route the test set by the threshold that spends a share of escalations on the validation set."""
    curve = policy.sweep(validation).curve()
    return policy.escalate(test, float(curve.threshold[curve.within(rate)]))


def rows(test: Workload, masks: dict[str, Mask], target: float, rounds: int, seed: int) -> list[Row]:
    """Return one row of table 2 for each routing, with bootstrap intervals over the test queries.

    ``masks``: keys of :data:`~research.paper.policies.TITLES`.
    """
    replicates = routings(test, masks, rounds, seed)
    found = []
    for name, mask in masks.items():
        f1, rate = micro_f1(test, mask), float(mask.mean())
        found.append(
            {
                "name": name,
                "title": TITLES[name],
                "escalated": rate,
                "micro_f1": f1,
                "micro_f1_interval": interval(replicates[name][:, 0]),
                "gap": f1 - target,
                **_costs(name, rate, replicates[name][:, 1]),
            }
        )
    return found


def _costs(name: str, rate: float, replicates: Floats) -> Row:
    """Return both costs and savings; a lone large model runs no small one."""
    alone = name in ("large", "small")
    sequential = paper_cost if alone else sequential_cost
    return {
        "paper_cost": paper_cost(rate),
        "sequential_cost": sequential(rate),
        "paper_saving": 1.0 - paper_cost(rate) / LARGE_COST,
        "sequential_saving": 1.0 - sequential(rate) / LARGE_COST,
        "paper_saving_interval": interval(1.0 - paper_cost(replicates) / LARGE_COST),
        "sequential_saving_interval": interval(1.0 - sequential(replicates) / LARGE_COST),
    }


def _other_target(policies: list[Policy], validation: Workload, test: Workload, effort: Effort, seed: int) -> list[Row]:
    masks = {policy.name: _at_target(policy, validation, test, published.TARGET) for policy in policies}
    return rows(test, masks, published.TARGET, effort.rounds, seed)


def _matched(policies: list[Policy], test: Workload, effort: Effort, seed: int) -> list[Row]:
    """Return what each method pays when its threshold meets the target on the test set itself.

    This takes the luck of the validation set out of the comparison; differences to UCCI are paired by resample.
    """
    sweeps = {policy.name: policy.sweep(test) for policy in policies}
    replicates = rates_at(sweeps, len(test), test.target, effort.matched_rounds, seed)
    ours, plain = paper_cost(replicates["ucci"]), paper_cost(replicates["margin"])
    found = []
    for name, sweep in sweeps.items():
        curve = sweep.curve()
        rate = float(curve.escalated[curve.cheapest(test.target)])
        theirs = paper_cost(replicates[name])
        found.append(
            {
                "name": name,
                "title": TITLES[name],
                "paper_cost": paper_cost(rate),
                "sequential_cost": sequential_cost(rate),
                "paper_cost_interval": interval(theirs),
                "over_ucci": float(np.mean(theirs / ours - 1.0)),
                "over_ucci_interval": interval(theirs / ours - 1.0),
                "over_margin_interval": interval(theirs / plain - 1.0),
            }
        )
    return found


def _ratio(ratio: float, rate: float) -> Row:
    return {
        "ratio": ratio,
        "paper_cost": paper_cost(rate, ratio),
        "paper_saving": 1.0 - paper_cost(rate, ratio) / ratio,
        "sequential_cost": sequential_cost(rate, ratio),
        "sequential_saving": 1.0 - sequential_cost(rate, ratio) / ratio,
    }


def _fields(test: Workload, ucci: Mask) -> list[Row]:
    everything = np.ones(len(test), dtype=bool)
    columns = {"small": ~everything, "large": everything, "ucci": ucci}
    scores = {name: field_f1(test, mask) for name, mask in columns.items()}
    found = [
        {"field": field, **{n: float(scores[n][place]) for n in columns}} for place, field in enumerate(test.fields)
    ]
    return [*found, {"field": "overall", **{name: micro_f1(test, mask) for name, mask in columns.items()}}]


def _splits(workload: Workload, splits: int, seed: int) -> list[Row]:
    """Repeat the protocol over random splits: how often, and by how much, each method misses the target."""
    found: dict[str, list[tuple[float, float]]] = {}
    for number in range(splits):
        calibration, validation, test = workload.split(seed + 1 + number)
        for policy in fit_policies(calibration, seed):
            mask = _at_target(policy, validation, test, workload.target)
            found.setdefault(policy.name, []).append((micro_f1(test, mask), float(mask.mean())))
    return [_spread(name, np.array(values), workload.target) for name, values in found.items()]


def _spread(name: str, values: Floats, target: float) -> Row:
    f1, cost = values[:, 0], paper_cost(values[:, 1])
    return {
        "name": name,
        "title": TITLES[name],
        "splits": len(values),
        "met": float(np.mean(f1 >= target)),
        "within_tolerance": float(np.mean(f1 >= target - 0.005)),
        "gap_mean": float(np.mean(f1 - target)),
        "gap_deviation": float(np.std(f1)),
        "paper_cost_mean": float(np.mean(cost)),
        "paper_cost_range": interval(np.asarray(cost)),
    }
