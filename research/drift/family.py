"""What a family of streams is: how the world, its labelers and its traffic change over a stream.

Progress through the stream, in [0, 1), flows in; conditions and labelers' behaviour flow out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from research.drift.mess import Mess

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Labelers:
    """How labels come, each a function of progress in [0, 1).

    ``slower``: factor on the mean delay. ``answered``: probability that a label asked for ever comes. ``careless``:
    probability that a label breaks a pair that was right. ``flattering``: probability that a label calls the small
    model's answer the truth.
    """

    slower: Callable[[Floats], Floats] = np.ones_like
    answered: Callable[[Floats], Floats] = np.ones_like
    careless: Callable[[Floats], Floats] = np.zeros_like
    flattering: Callable[[Floats], Floats] = np.zeros_like


@dataclass(frozen=True)
class Family:
    """One kind of drift.

    ``world``: from progress in [0, 1) to named log-odds of :class:`~research.drift.world.Conditions`. ``rate``: queries
    per tenth of a second. ``changes``: progress at which something begins that a detector should tell; before the
    first, every alarm is false. ``adversary``: whether labels lie, for which the floor of compliance is .80 instead of
    .85. ``mess``: what goes wrong beside drift; with it labelers have names and an expert answers audits.
    """

    name: str
    about: str
    world: Callable[[Floats], dict[str, Floats]] = lambda _: {}
    labelers: Labelers = field(default_factory=Labelers)
    rate: Callable[[Floats], Floats] = np.ones_like
    changes: tuple[float, ...] = ()
    adversary: bool = False
    mess: Mess | None = None


def since(progress: Floats, begin: float, end: float = 1.0) -> Floats:
    """Return 1 from one progress to another, 0 elsewhere."""
    return ((progress >= begin) & (progress < end)).astype(np.float64)


def ramp(progress: Floats, begin: float, end: float) -> Floats:
    """Return what rises from 0 at one progress to 1 at another."""
    return np.clip((progress - begin) / (end - begin), 0.0, 1.0)
