"""A value of u that many queries share: which of them are kept is drawn, since no threshold parts them.

Servers that report probability 1 for every token give all their answers u = 0. Keeping all of these misses the target,
and escalating all of them pays for far more than it takes to meet it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from recalibrator.fit.arrays import Floats
from recalibrator.fit.decide.threshold import Choice, Policies, choose, weigh
from recalibrator.fit.estimate.estimate import Estimate
from schemas.calibration import ESCALATE_ALL, Atom, CalibrationVersion

ATOM_SHARE = 0.05
"""Share of the current queries in one cell of u from which it counts as an atom; cells are .04 wide in logit(u), and no
continuous u puts as many into one."""

_LEVELS = 40
"""Of the keep-probability: a 40th of the atom is the least that is escalated for."""


class Drawn(NamedTuple):
    """The policies under the best keep-probability, the one chosen, and the atom; None where none is cut."""

    policies: Policies
    choice: Choice
    atom: Atom | None


def atom_of(traffic: Floats, edges: Floats) -> Atom | None:
    """Return the cell of u that holds the most of the current queries, where it is an atom; all of it is kept.

    ``traffic`` are the shares of queries by cell, ``edges`` the upper edges of all cells but the last.

    Examples
    --------
    >>> atom_of(np.array([0.3, 0.04, 0.66]), np.array([0.1, 0.2])).most
    1.0
    """
    cell = int(np.argmax(traffic))
    if traffic[cell] < ATOM_SHARE:
        return None
    above = float(edges[cell - 1]) if cell else ESCALATE_ALL
    return Atom(above=above, most=float(edges[cell]) if cell < len(edges) else 1.0, keep_probability=1.0)


def choose_drawn(
    estimate: Estimate,
    edges: Floats,
    exploration: float,
    safety: float,
    whole: Drawn,
    held: CalibrationVersion | None = None,
) -> Drawn:
    """Choose the threshold and the keep-probability of an atom that together escalate least and meet the target.

    ``whole`` keeps or escalates an atom as a whole; it stays where nothing that cuts one meets the target at less
    escalation. While a server is out, ``held`` cuts as it did, at the threshold of ``whole``. ``safety`` is a margin in
    standard errors of F.
    """
    if held is not None:
        kept = held.atom
        target = whole.policies.target
        return whole if kept is None else Drawn(weigh(estimate, edges, target, exploration, kept), whole.choice, kept)
    best, atom = whole, atom_of(estimate.traffic, edges)
    if atom is None or not best.choice.feasible:
        return best
    least = float(best.policies.escalation_rate[best.choice.index])
    for level in range(_LEVELS):
        cut = atom.model_copy(update={"keep_probability": level / _LEVELS})
        policies = weigh(estimate, edges, best.policies.target, exploration, cut)
        choice = choose(policies, safety)
        secured = policies.value[choice.index] - safety * policies.error[choice.index]
        rate = float(policies.escalation_rate[choice.index])
        # What escalates the atom as a whole cuts nothing.
        if secured >= 0.0 and rate < least and policies.thresholds[choice.index] >= atom.most:
            best, least = Drawn(policies, choice, cut), rate
    return best
