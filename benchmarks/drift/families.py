"""The families of streams: progress through the stream flows in, conditions and labelers' behaviour flow out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FIVE_POINTS = 0.98
"""Log-odds of small errors that cost the small model five points of micro-F1."""


@dataclass(frozen=True)
class Labelers:
    """How labels come, each a function of progress in [0, 1).

    Parameters
    ----------
    slower : callable
        Factor on the mean delay.
    answered : callable
        Probability that a label asked for ever comes.
    careless : callable
        Probability that a label breaks a pair that was right.
    flattering : callable
        Probability that a label calls the small model's answer the truth.
    """

    slower: Callable[[Floats], Floats] = np.ones_like
    answered: Callable[[Floats], Floats] = np.ones_like
    careless: Callable[[Floats], Floats] = np.zeros_like
    flattering: Callable[[Floats], Floats] = np.zeros_like


@dataclass(frozen=True)
class Family:
    """One kind of drift.

    Parameters
    ----------
    name, about : str
    world : callable
        From progress in [0, 1) to named log-odds of :class:`~benchmarks.drift.world.Conditions`.
    labelers : Labelers
    rate : callable
        Queries per tenth of a second.
    changes : tuple of float
        Progress at which something begins that a detector should tell; before the first, every alarm is false.
    adversary : bool
        Whether labels lie, for which the floor of compliance is .80 instead of .85.
    """

    name: str
    about: str
    world: Callable[[Floats], dict[str, Floats]] = lambda _: {}
    labelers: Labelers = field(default_factory=Labelers)
    rate: Callable[[Floats], Floats] = np.ones_like
    changes: tuple[float, ...] = ()
    adversary: bool = False


def _from(progress: Floats, begin: float, end: float = 1.0) -> Floats:
    return ((progress >= begin) & (progress < end)).astype(np.float64)


def _ramp(progress: Floats, begin: float, end: float) -> Floats:
    return np.clip((progress - begin) / (end - begin), 0.0, 1.0)


def _small_drift(begin: float, end: float) -> Callable[[Floats], dict[str, Floats]]:
    return lambda t: {"small": FIVE_POINTS * _ramp(t, begin, end)}


FAMILIES = (
    Family("stationary", "nothing changes"),
    Family(
        "small_abrupt",
        "the small model loses 5 points of F1 at once",
        lambda t: {"small": FIVE_POINTS * _from(t, 0.4)},
        changes=(0.4,),
    ),
    Family("small_gradual", "the same over 80k queries", _small_drift(0.3, 0.7), changes=(0.3,)),
    Family(
        "large_abrupt",
        "the large model errs half as often again",
        lambda t: {"large": 0.45 * _from(t, 0.4)},
        changes=(0.4,),
    ),
    Family(
        "large_gradual", "the same over 80k queries", lambda t: {"large": 0.45 * _ramp(t, 0.3, 0.7)}, changes=(0.3,)
    ),
    Family(
        "both_abrupt",
        "both fail alike more often, with equal answers",
        lambda t: {"alike": 0.9 * _from(t, 0.4)},
        changes=(0.4,),
    ),
    Family("both_gradual", "the same over 80k queries", lambda t: {"alike": 0.9 * _ramp(t, 0.3, 0.7)}, changes=(0.3,)),
    Family(
        "covariate",
        "harder queries become more frequent",
        lambda t: {"hard": 0.3 * _from(t, 0.4)},
        changes=(0.4,),
    ),
    Family(
        "prior",
        "queries that the small model gets wrong become more frequent",
        lambda t: {"prior": 0.8 * _from(t, 0.4)},
        changes=(0.4,),
    ),
    Family(
        "recurring",
        "a 4-point loss comes and goes every 25k queries",
        lambda t: {"small": 0.8 * ((t * 8.0).astype(np.int64) % 2)},
        changes=(0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875),
    ),
    Family(
        "slow_trend",
        "the small model gets worse all along",
        lambda t: {"small": 1.2 * t - 0.2},
        changes=(0.0,),
    ),
    Family(
        "signal_lost", "u says nothing for 4 queries in 10", lambda t: {"lost": 0.4 * _from(t, 0.4)}, changes=(0.4,)
    ),
    Family(
        "label_noise",
        "5 % of labels are wrong for 80k queries",
        labelers=Labelers(careless=lambda t: 0.05 * _from(t, 0.3, 0.7)),
        changes=(0.3,),
        adversary=True,
    ),
    Family(
        "label_flattery",
        "from some time on a fifth of the labels call the small answer right",
        labelers=Labelers(flattering=lambda t: 0.2 * _from(t, 0.3)),
        changes=(0.3,),
        adversary=True,
    ),
    Family(
        "label_delay",
        "labels take 10 times as long, and the small model then loses 5 points",
        lambda t: {"small": FIVE_POINTS * _from(t, 0.5)},
        Labelers(slower=lambda t: 1.0 + 9.0 * _from(t, 0.3)),
        changes=(0.5,),
    ),
    Family(
        "label_drought",
        "for 70k queries one label in 50 comes, and the small model gets worse meanwhile",
        _small_drift(0.4, 0.6),
        Labelers(answered=lambda t: 1.0 - 0.98 * _from(t, 0.3, 0.65)),
        changes=(0.4,),
    ),
    Family(
        "volume_swing",
        "traffic swings tenfold, difficulty with it",
        lambda t: {"hard": 0.12 * np.sin(2.0 * np.pi * 5.0 * t)},
        rate=lambda t: 10.0 ** (0.5 * np.sin(2.0 * np.pi * 5.0 * t)),
        changes=(0.0,),
    ),
    Family(
        "new_model",
        "a new small model: u on another scale, 2 points better",
        lambda t: {"stretch": -0.3 * _from(t, 0.4), "offset": -2.0 * _from(t, 0.4), "small": -0.3 * _from(t, 0.4)},
        changes=(0.4,),
    ),
    Family(
        "infeasible",
        "the large model falls below the target for 50k queries and recovers",
        lambda t: {"large": 1.1 * _from(t, 0.35, 0.6)},
        changes=(0.35, 0.6),
    ),
)
BY_NAME = {family.name: family for family in FAMILIES}
