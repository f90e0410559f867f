"""How true the estimate is while the service learns a change: its error beside the standard error that it claims.

At every 1,000th query the core is asked what it would decide now (:meth:`evaluate` changes nothing). Its expected
micro-F1 at the threshold in force is held against the true one: that of the same threshold and exploration, over all
draws from what the phase's queries are drawn from.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from research.answers.streams import Judged
from research.recorded.scoring import Curve
from research.recorded.service import Service
from research.recorded.simulate import Routed

LOOK_EVERY = 1_000
"""Queries from one look to the next; a multiple of the batches after which the service sees its traffic."""


class Look(NamedTuple):
    """What the core said of the threshold in force after so many queries of the stream."""

    queries: int
    threshold: float
    exploration: float
    micro_f1: float
    standard_error: float


class Watched(Service):
    """The service, whose estimate is noted at every 1,000th query."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.looks: list[Look] = []
        super().__init__(*arguments, **options)

    def see(self, routed: Routed) -> None:
        """Hand on a batch of traffic, and note the estimate where a look is due."""
        super().see(routed)
        queries = int(routed.rows[-1]) + 1
        if queries % LOOK_EVERY == 0:
            self.looks.append(self._look(queries))

    def _look(self, queries: int) -> Look:
        candidate = self.core.evaluate()
        policies = candidate.policies
        place = policies.index(self.threshold)
        return Look(
            queries,
            self.threshold,
            candidate.exploration,
            float(policies.micro_f1[place]),
            float(policies.error[place] / policies.size[place]),
        )


class Error(NamedTuple):
    """How far one look was off.

    ``since``: queries since the phase began. ``off``: the expected micro-F1 less the true one. ``claimed``: the
    standard error that the estimate had.
    """

    phase: int
    since: int
    off: float
    claimed: float


def errors_of(looks: Iterable[Look], judged: Judged) -> list[Error]:
    """Return how far each look was off."""
    stream = judged.stream
    curves = [(Curve(clean), Curve(shifted)) for clean, shifted in stream.pools]
    errors = []
    for look in looks:
        phase = int(stream.phase[look.queries - 1])
        share = stream.phases[phase].share
        clean, shifted = curves[phase]
        threshold = np.array([look.threshold])
        parts = (1.0 - share) * clean.parts(threshold, look.exploration)
        parts += share * shifted.parts(threshold, look.exploration)
        true_micro_f1 = float(parts[0, 0] / parts[0, 1])
        began = int(np.searchsorted(stream.phase, phase))
        errors.append(Error(phase, look.queries - began, look.micro_f1 - true_micro_f1, look.standard_error))
    return errors


class Segment(NamedTuple):
    """A part of the stream in which looks are taken together: of a phase, those after so many queries up to so many."""

    title: str
    phase: int
    after: int
    upto: int

    def holds(self, error: Error) -> bool:
        """Return whether a look lies in it."""
        return error.phase == self.phase and self.after < error.since <= self.upto


SEGMENTS = (
    Segment("clean", 0, 0, 6_000),
    Segment("change, to 1,000 queries", 1, 0, 1_000),
    Segment("change, to 2,000", 1, 1_000, 2_000),
    Segment("change, to 6,000", 1, 2_000, 6_000),
    Segment("way back, to 1,000 queries", 2, 0, 1_000),
    Segment("way back, to 2,000", 2, 1_000, 2_000),
    Segment("way back, to 6,000", 2, 2_000, 6_000),
)


def by_segment(streams: Sequence[Sequence[Error]]) -> list[dict[str, Any]]:
    """Return for each segment that has a look the mean ``error``, its ``deviation`` and the ``claimed`` one.

    ``streams``: the errors of each. ``deviation``: standard deviation over streams at the same place, taken together
    (root of the mean square) over a segment's places; none of one stream.
    """
    rows: list[dict[str, Any]] = []
    for segment in SEGMENTS:
        by_place: dict[int, list[Error]] = defaultdict(list)
        for error in (error for errors in streams for error in errors if segment.holds(error)):
            by_place[error.since].append(error)
        if not by_place:
            continue
        everything = [error for errors in by_place.values() for error in errors]
        variances = [np.var([error.off for error in errors], ddof=1) for errors in by_place.values() if len(errors) > 1]
        rows.append(
            {
                "segment": segment.title,
                "looks": len(everything),
                "error": float(np.mean([error.off for error in everything])),
                "deviation": float(np.sqrt(np.mean(variances))) if variances else None,
                "claimed": float(np.mean([error.claimed for error in everything])),
            }
        )
    return rows
