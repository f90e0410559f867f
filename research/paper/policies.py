"""The routing methods of the paper's tables: a calibration set flows in, scores to threshold flow out.

Every method ends in "escalate above a threshold of its score"; they differ in the score and in the thresholds allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from research.paper.thresholds import Sweep
from research.paper.workloads import Floats, Mask, Workload

Score = Callable[[Workload], Floats]
_EDGE = 1e-9

TITLES = {
    "ucci": "UCCI",
    "conformal": "Split conformal",
    "frugal": "FrugalGPT-style (learned)",
    "entropy": "Entropy",
    "max_probability": "Max probability",
    "margin": "Token margin, uncalibrated",
    "random": "Coin flip",
    "large": "Large only",
    "small": "Small only",
}
SIGNALS = ("margin", "entropy", "max_probability", "minimum_margin", "likelihood")


@dataclass(frozen=True, slots=True)
class Policy:
    """One method, fitted.

    ``name``: A key of :data:`TITLES`. ``score``: from a workload to a score a query; larger is riskier. ``candidates``:
    the only thresholds that the method may use.
    """

    name: str
    score: Score
    candidates: Floats | None = None

    def sweep(self, workload: Workload) -> Sweep:
        """Return all thresholds of this method on some queries."""
        return Sweep(self.score(workload), workload, self.candidates)

    def escalate(self, workload: Workload, threshold: float) -> Mask:
        """Return which queries go to the large model."""
        return self.score(workload) > threshold


def fit_policies(calibration: Workload, seed: int) -> list[Policy]:
    """Fit every method that has a threshold, UCCI first.

    ``seed``: of the coin flips.
    """
    isotonic = fit_isotonic(calibration)
    scorer = fit_scorer(calibration)
    return [
        Policy("ucci", lambda w: isotonic(w.signals["margin"])),
        Policy("conformal", by_signal("margin"), conformal_thresholds(calibration)),
        Policy("frugal", scorer),
        *(Policy(name, by_signal(name)) for name in ("entropy", "max_probability", "margin")),
        Policy("random", lambda w: np.random.default_rng(seed).uniform(size=len(w))),
    ]


def by_signal(name: str) -> Score:
    """Return the score that is one signal as it stands."""
    return lambda workload: workload.signals[name]


def fit_isotonic(calibration: Workload) -> Callable[[Floats], Floats]:
    """Return g: from u to the small model's error probability, by isotonic regression (paper, section 4.2)."""
    model = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
    model.fit(calibration.signals["margin"], calibration.error)
    return lambda u: np.asarray(model.predict(u), dtype=np.float64)


def fit_temperature(calibration: Workload) -> Callable[[Floats], Floats]:
    """Return u with its logit divided by one temperature, fitted by likelihood (paper, appendix B.4)."""
    logits = logit(np.clip(calibration.signals["margin"], _EDGE, 1.0 - _EDGE))
    error = calibration.error

    def loss(log_temperature: float) -> float:
        scaled = logits / np.exp(log_temperature)
        return float(np.mean(np.logaddexp(0.0, np.where(error, -scaled, scaled))))

    temperature = float(np.exp(minimize_scalar(loss, bounds=(-5.0, 5.0), method="bounded").x))
    return lambda u: np.asarray(expit(logit(np.clip(u, _EDGE, 1.0 - _EDGE)) / temperature))


def fit_platt(calibration: Workload) -> Callable[[Floats], Floats]:
    """Return a logistic regression on the logit of u: a temperature and an offset. Not in the paper."""

    def column(u: Floats) -> Floats:
        return np.asarray(logit(np.clip(u, _EDGE, 1.0 - _EDGE)))[:, None]

    model = LogisticRegression(C=1e6).fit(column(calibration.signals["margin"]), calibration.error)
    return lambda u: np.asarray(model.predict_proba(column(u))[:, 1])


def fit_scorer(calibration: Workload) -> Score:
    """Return a learned scorer: logistic regression of the small model's error on the logs of all its signals.

    The paper's text tells only of a tuned confidence threshold; FrugalGPT itself learns a scorer (arXiv 2305.05176,
    section 3), and so does this row. The literal reading is the row of the maximum probability.
    """

    def features(workload: Workload) -> Floats:
        known = [workload.signals[name] for name in SIGNALS if name in workload.signals]
        return np.log(np.clip(np.column_stack(known), _EDGE, None))

    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(features(calibration), calibration.error)
    return lambda workload: np.asarray(model.predict_proba(features(workload))[:, 1])


def conformal_thresholds(calibration: Workload) -> Floats:
    """Return the split-conformal thresholds on u of every miscoverage level.

    Scores are u of the calibration queries that the small model got right; the threshold of level alpha is their
    ceil((n + 1)(1 - alpha))-th smallest, so that the levels together reach exactly these values (arXiv 2107.07511).
    """
    return np.sort(calibration.signals["margin"][~calibration.error])
