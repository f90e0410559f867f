"""What deciding needs, looked up once a version: constants flow in, a plan for one query after another flows out."""

from __future__ import annotations

from hashlib import blake2b
from itertools import pairwise
from typing import Any, NamedTuple, Self

from schemas.draws import digest_bound, keyed
from schemas.routed import DecisionReason

Segment = tuple[float, float, float, float]


class Plan(NamedTuple):
    """The constants of one version's decisions.

    Parameters
    ----------
    threshold : float
        Escalate u above it.
    knots : tuple of float
        Of the map g; empty in a cold start.
    segments : tuple of tuple of float
        The lines of g: below the first knot, between each two, above the last; as :func:`segments` gives them.
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
    segments: tuple[Segment, ...]
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
        known: tuple[float | None, int | None] = (None, None),
        knots: tuple[float, ...] = (),
        segments: tuple[Segment, ...] = (),
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
        knots, segments : tuple
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
            segments=segments,
            above=fields(above, 1.0),
            explored=fields("exploration", exploration),
            kept=kept,
            without_u=fields(without_u, 1.0),
            names=set(kept),
            keyed=keyed(workload),
            explored_below=digest_bound(exploration),
        )


def segments(knots: tuple[float, ...], values: tuple[float, ...]) -> tuple[Segment, ...]:
    """Return the lines of the map g, so that one look-up and no case reads it: linear between knots, clipped outside.

    Returns
    -------
    tuple of tuple of float
        Value at the left knot, that knot, the distance to the next, and the rise up to it. What lies outside the knots
        does not rise.

    Examples
    --------
    >>> segments((0.0, 0.5), (0.1, 0.25))
    ((0.1, 0.0, 1.0, 0.0), (0.1, 0.0, 0.5, 0.15), (0.25, 0.0, 1.0, 0.0))
    """
    if not knots:
        return ()
    inner = [
        (v, k, right - k, above - v) for (k, right), (v, above) in zip(pairwise(knots), pairwise(values), strict=True)
    ]
    return ((values[0], 0.0, 1.0, 0.0), *inner, (values[-1], 0.0, 1.0, 0.0))
