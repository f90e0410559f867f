"""The paper's section 6.3 and its two figures, as numbers: calibration maps, signals, assumption (ii), curves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from sklearn.metrics import brier_score_loss, roc_auc_score

from research.paper.intervals import interval, of_statistic, routings
from research.paper.measures import calibration_error, micro_f1, paper_cost, reliability
from research.paper.policies import SIGNALS, Policy, fit_isotonic, fit_platt, fit_temperature
from research.paper.thresholds import Sweep
from research.paper.workloads import Floats, Integers, Mask, Workload

_POINTS = 200
_ECE_ROUNDS = 400


def _maps(calibration: Workload) -> dict[str, Callable[[Floats], Floats]]:
    return {
        "isotonic": fit_isotonic(calibration),
        "temperature": fit_temperature(calibration),
        "platt": fit_platt(calibration),
        "none": lambda u: u,
    }


def calibration_methods(
    calibration: Workload, validation: Workload, test: Workload, rounds: int, seed: int
) -> list[dict[str, Any]]:
    """Score each map from u to an error probability, in-sample as the paper does and on the test set.

    ``rounds``: bootstrap rounds, at most 400.
    """
    found = []
    for name, predict in _maps(calibration).items():
        within, beyond = predict(calibration.signals["margin"]), predict(test.signals["margin"])
        curve = Sweep(predict(validation.signals["margin"]), validation).curve()
        mask = beyond > curve.threshold[curve.cheapest(test.target)]
        found.append(
            {
                "name": name,
                "ece_in_sample": calibration_error(within, calibration.error),
                "ece_in_sample_interval": _ece_interval(within, calibration.error, rounds, seed),
                "ece": calibration_error(beyond, test.error),
                "ece_interval": _ece_interval(beyond, test.error, rounds, seed),
                "ece_equal_width": calibration_error(beyond, test.error, by="width"),
                "brier": float(brier_score_loss(test.error, beyond)),
                "distinct": len(np.unique(beyond)),
                "paper_cost": paper_cost(float(mask.mean())),
                "gap": micro_f1(test, mask) - test.target,
            }
        )
    return found


def _ece_interval(forecast: Floats, event: Mask, rounds: int, seed: int) -> tuple[float, float]:
    def error(rows: Integers) -> float:
        return calibration_error(forecast[rows], event[rows])

    return of_statistic(error, len(event), min(rounds, _ECE_ROUNDS), seed)


def smallest_theta(calibration: Workload, validation: Workload) -> float:
    """Return the escalation rate of the smallest feasible theta, which the proof of theorem 1 asks for."""
    curve = Sweep(fit_isotonic(calibration)(validation.signals["margin"]), validation).curve()
    feasible = np.flatnonzero(curve.micro_f1 >= validation.target)
    # A theta lies in [0, 1]: the least one keeps what g puts at 0.
    smallest = feasible[curve.threshold[feasible] >= 0.0]
    return float(curve.escalated[smallest[0]]) if len(smallest) else 1.0


def signals(validation: Workload, test: Workload) -> list[dict[str, Any]]:
    """Score each raw signal: how well it ranks errors, and what it costs to meet the target by it."""
    found = []
    for name in (name for name in SIGNALS if name in test.signals):
        curve, ideal = Sweep(validation.signals[name], validation).curve(), Sweep(test.signals[name], test).curve()
        mask = test.signals[name] > curve.threshold[curve.cheapest(test.target)]
        found.append(
            {
                "name": name,
                "auroc": float(roc_auc_score(test.error, test.signals[name])),
                "paper_cost": paper_cost(float(mask.mean())),
                "gap": micro_f1(test, mask) - test.target,
                "matched_cost": paper_cost(float(ideal.escalated[ideal.cheapest(test.target)])),
                "mean_f1": float(np.trapezoid(ideal.micro_f1[::-1], ideal.escalated[::-1])),
            }
        )
    return found


def large_on_escalated(test: Workload, mask: Mask, rounds: int, seed: int) -> dict[str, Any]:
    """Compare both models on escalated, kept and all queries (assumption (ii) of theorem 1)."""
    result: dict[str, Any] = {"escalated_share": float(mask.mean())}
    for name, chosen in (("all", np.ones(len(test), dtype=bool)), ("escalated", mask), ("kept", ~mask)):
        if not chosen.any():
            continue
        part = test.take(np.flatnonzero(chosen))
        both = {"small": np.zeros(len(part), dtype=bool), "large": np.ones(len(part), dtype=bool)}
        replicates = routings(part, both, rounds, seed)
        for role, routed in both.items():
            result[f"{role}_{name}"] = micro_f1(part, routed)
            result[f"{role}_{name}_interval"] = interval(replicates[role][:, 0])
    return result


def curves(policies: list[Policy], test: Workload) -> dict[str, dict[str, list[float]]]:
    """Return micro-F1 over the paper's cost on the test set, at about 200 thresholds a method."""
    found = {}
    for policy in policies:
        curve = policy.sweep(test).curve()
        chosen = np.unique(np.searchsorted(-curve.escalated, -np.linspace(1.0, 0.0, _POINTS)))
        chosen = chosen[chosen < len(curve.escalated)]
        cost = np.asarray(paper_cost(curve.escalated[chosen]))
        found[policy.name] = {"paper_cost": cost.tolist(), "micro_f1": curve.micro_f1[chosen].tolist()}
    return found


def diagrams(calibration: Workload, test: Workload) -> dict[str, list[dict[str, float]]]:
    """Return the reliability bins on the test set of the raw margin, the temperature and the isotonic map."""
    found = {}
    for name, predict in _maps(calibration).items():
        if name != "platt":
            found[name] = [asdict(one) for one in reliability(predict(test.signals["margin"]), test.error)]
    return found
