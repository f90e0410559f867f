"""What deciding needs, looked up once a version: constants flow in, a plan for one query after another flows out."""

from __future__ import annotations

from bisect import bisect_right
from hashlib import blake2b
from typing import Any, NamedTuple, Self

from schemas.draws import digest_bound, keyed
from schemas.routed import DecisionReason


class Plan(NamedTuple):
    """The constants of one version's decisions.

    Parameters
    ----------
    threshold : float
        Escalate u above it.
    knots, values : tuple of float
        The map g; empty in a cold start.
    above, explored, kept, without_u : dict
        The fields of a decision by what led to it, u and g(u) left out.
    names : set of str
        Of these fields.
    keyed : blake2b
        The hash that the workload's name begins, of which copies are updated.
    explored_below : bytes
        The digests of queries to explore lie below it.
    """

    threshold: float
    knots: tuple[float, ...]
    values: tuple[float, ...]
    above: dict[str, Any]
    explored: dict[str, Any]
    kept: dict[str, Any]
    without_u: dict[str, Any]
    names: set[str]
    keyed: blake2b
    explored_below: bytes

    @classmethod
    def of(
        cls,
        workload: str,
        threshold: float,
        above: DecisionReason,
        without_u: DecisionReason,
        exploration: float,
        *,
        known: tuple[float | None, int | None] = (None, None),
        knots: tuple[float, ...] = (),
        values: tuple[float, ...] = (),
    ) -> Self:
        """Make a plan.

        Parameters
        ----------
        workload : str
        threshold : float
            On u.
        above, without_u : str
            Reasons to escalate.
        exploration : float
            Probability, in [0, 1].
        known : tuple
            The threshold on g, for people, and the version's number.
        knots, values : tuple of float
            The map g.
        """

        def fields(reason: DecisionReason, large_probability: float) -> dict[str, Any]:
            """In the order of declaration."""
            return {
                "escalated": reason != "kept",
                "reason": reason,
                "uncertainty": None,
                "error_probability": None,
                "threshold": known[0],
                "calibration_version": known[1],
                "large_probability": large_probability,
                "trial": None,
            }

        kept = fields("kept", exploration)
        return cls(
            threshold=threshold,
            knots=knots,
            values=values,
            above=fields(above, 1.0),
            explored=fields("exploration", exploration),
            kept=kept,
            without_u=fields(without_u, 1.0),
            names=set(kept),
            keyed=keyed(workload),
            explored_below=digest_bound(exploration),
        )


def interpolate(knots: tuple[float, ...], values: tuple[float, ...], uncertainty: float) -> float:
    """Read the map g at one u: linear between knots, clipped outside.

    Examples
    --------
    >>> interpolate((0.0, 0.5), (0.0, 0.25), 0.25), interpolate((0.0, 0.5), (0.0, 0.25), 0.9)
    (0.125, 0.25)
    """
    right = bisect_right(knots, uncertainty)
    if right == 0:
        return values[0]
    if right == len(knots):
        return values[-1]
    low, value = knots[right - 1], values[right - 1]
    return value + (uncertainty - low) / (knots[right] - low) * (values[right] - value)
