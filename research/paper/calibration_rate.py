"""Proposition 2: how the error of an isotonic fit falls with the number of labels, beside the rates that theory gives.

A true curve g of u and a seed flow in; mean errors by n flow out, without test noise: g is known, so that a fitted map
is compared with it on a fine grid. u is uniform on [0, 1], which costs no generality: isotonic regression sees ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression

from research.paper.measures import BINS, calibration_error
from research.paper.policies import fit_isotonic
from research.paper.workloads import Floats, Workload

CHERNOFF_MEAN = 0.41273655
"""Mean of the absolute argmax of two-sided Brownian motion less t²: Groeneboom and Wellner (2001), Computing Chernoff's
distribution."""
LABELS = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
RECORDED_LABELS = (50, 100, 200, 400, 800, 1_600, 3_200, 6_000)
_GRID = 50_000
_HELD_OUT = 6_000
Curve = Callable[[Floats], Floats]


def rising(u: Floats) -> Floats:
    """Return a smooth, strictly rising error probability: the regular case."""
    return np.asarray(expit(6.0 * u - 4.0))


def steps(u: Floats) -> Floats:
    """Return three levels: flat almost everywhere."""
    return np.asarray(np.select([u < 0.5, u < 0.8], [0.05, 0.3], 0.7))


def hump(u: Floats) -> Floats:
    """Return a rising curve with a bump of confident errors about u = 0.3: not monotone."""
    return np.asarray(rising(u) + 0.35 * np.exp(-(((u - 0.3) / 0.08) ** 2)))


CURVES: dict[str, Curve] = {"rising": rising, "steps": steps, "hump": hump}


@dataclass(frozen=True, slots=True)
class Errors:
    """How far one fitted map is off.

    ``l1``, ``l2``: distance to g: mean absolute and root mean square. The paper's proof bounds the second and takes the
    first for the calibration error. ``binned``: calibration error over deciles of the forecast, as the paper measures
    it, for infinitely many test queries.
    """

    l1: float
    l2: float
    binned: float


def errors(curve: Curve, labels: int, rng: np.random.Generator) -> Errors:
    """Draw a calibration set, fit it, and compare the map with the truth."""
    u = rng.uniform(size=labels)
    model = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(u, rng.uniform(size=labels) < curve(u))
    grid = (np.arange(_GRID) + 0.5) / _GRID
    forecast, truth = np.asarray(model.predict(grid)), curve(grid)
    apart = forecast - truth
    return Errors(float(np.abs(apart).mean()), float(np.sqrt((apart**2).mean())), binned_error(forecast, truth))


def binned_error(forecast: Floats, truth: Floats, bins: int = BINS) -> float:
    """Return the calibration error over quantile bins of the forecast where the events' probabilities are known.

    Equal forecasts stay together, as in :func:`research.paper.measures.reliability`.
    """
    edges = np.unique(np.quantile(forecast, np.arange(1, bins) / bins))
    place = np.searchsorted(edges, forecast, side="left")
    return float(np.abs(np.bincount(place, weights=forecast - truth)).sum() / len(forecast))


def asymptotic_l1(curve: Curve, labels: int) -> float:
    """Return the L1 error that theory expects of a smooth rising curve: a constant times n^(-1/3).

    At each u the error of the fit times n^(1/3) tends to (4 g(1 - g) g')^(1/3) times a variable of Chernoff's
    distribution (Brunk 1970; Groeneboom and Wellner 2001); u is uniform.
    """
    grid = np.linspace(0.0, 1.0, _GRID)
    truth = curve(grid)
    slope = np.clip(np.gradient(truth, grid), 0.0, None)
    scale = np.cbrt(4.0 * truth * (1.0 - truth) * slope)
    return float(CHERNOFF_MEAN * np.trapezoid(scale, grid) * labels ** (-1.0 / 3.0))


def rates(repetitions: int, seed: int, labels: Sequence[int] = LABELS) -> dict[str, Any]:
    """Return mean errors with their standard errors, by curve and n, and the exponents fitted to them.

    ``repetitions``: calibration sets a point.
    """
    found: dict[str, Any] = {}
    for name, curve in CURVES.items():
        rng = np.random.default_rng(seed)
        rows = [_row(n, [errors(curve, n, rng) for _ in range(repetitions)]) for n in labels]
        if name == "rising":
            rows = [{**row, "theory": asymptotic_l1(curve, int(row["labels"]))} for row in rows]
        exponents = {part: exponent(labels, [row[part] for row in rows]) for part in ("l1", "l2", "binned")}
        found[name] = {"rows": rows, "exponents": exponents}
    return found


def _row(labels: int, drawn: list[Errors]) -> dict[str, float]:
    row: dict[str, float] = {"labels": labels}
    for part in ("l1", "l2", "binned"):
        values = np.array([getattr(one, part) for one in drawn])
        row[part] = float(values.mean())
        row[f"{part}_error"] = float(values.std(ddof=1) / np.sqrt(len(values)))
    return row


def exponent(labels: Sequence[int], values: Sequence[float]) -> float:
    """Return the slope of log error over log n, by least squares."""
    return float(np.polyfit(np.log(labels), np.log(values), 1)[0])


def recorded_rates(workload: Workload, repetitions: int, seed: int) -> list[dict[str, float]]:
    """Return the decile calibration error on held-out queries of a real workload, by number of calibration labels.

    Returns ``binned`` and ``binned_error``: mean and standard error; ``floor``: what the same test set shows of a map
    that is right, drawn from its own forecasts. Repetitions overlap in their queries.
    """
    rng = np.random.default_rng(seed)
    most = len(workload) - _HELD_OUT
    found = []
    for labels in (n for n in RECORDED_LABELS if n <= most):
        seen, floor = [], []
        for _ in range(repetitions):
            order = rng.permutation(len(workload))
            test = workload.take(order[:_HELD_OUT])
            forecast = fit_isotonic(workload.take(order[_HELD_OUT : _HELD_OUT + labels]))(test.signals["margin"])
            seen.append(calibration_error(forecast, test.error))
            floor.append(calibration_error(forecast, rng.uniform(size=len(test)) < forecast))
        spread = float(np.std(seen, ddof=1) / np.sqrt(repetitions))
        found.append(
            {"labels": labels, "binned": float(np.mean(seen)), "binned_error": spread, "floor": float(np.mean(floor))}
        )
    return found
