"""The scores of messy streams, beside compliance and regret: labels set aside, audits, load on a failing server.

Which labels are set aside the service does not say, only how many: both errors of the quarantine are lower bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from research.drift.oracle import expected_micro_f1
from research.drift.score import mean_cost
from research.drift.simulate import Routed
from research.drift.streams import Stream

Floats = NDArray[np.float64]

AROUND = 10_000
"""Queries before a server's trouble that load and escalation are compared with, and after it that count too."""


@dataclass(frozen=True)
class MessScore:
    """What one policy makes of one messy stream.

    ``wrong_quarantined``, ``wrong_quarantined_mean``: labels set aside at once beyond those that are not the truth:
    most, and mean over the stream. ``missed_lies``: standing labels at the end that are not the truth, less those set
    aside; None where nobody attacks. ``audits``, ``all_alarms``: audits opened, and alarms of all detectors from the
    first query on. ``load``: attempts a query at the large server while it is in trouble, over those of the 10,000
    queries before; None where it never is. ``highest_rate``, ``highest_rate_calm``: highest escalation rate that a
    version published while either server is in trouble, or within 10,000 queries after, has on the queries before; over
    that of the version before. The second: on the same stream with healthy servers, where it is more than 1 as well,
    since versions follow labels. None where no server is in trouble. ``micro_f1_moved``, ``micro_f1_moved_most``,
    ``cost_moved``: against the same stream with honest labelers: by how much expected micro-F1 differs over the whole
    stream, at most in a block, and the relative difference of sequential cost; None where nobody attacks.
    """

    wrong_quarantined: float
    wrong_quarantined_mean: float
    missed_lies: int | None
    audits: int
    all_alarms: int
    load: float | None
    highest_rate: float | None
    highest_rate_calm: float | None
    micro_f1_moved: float | None
    micro_f1_moved_most: float | None
    cost_moved: float | None


def mess_score(stream: Stream, routed: Routed, twin: Routed | None) -> MessScore:
    """Score one walk.

    ``stream``: A messy one. ``twin``: the walk of the same policy with honest labelers and healthy servers; needed
    where they are not.
    """
    mess, journal = stream.family.mess, routed.journal
    if mess is None or journal is None or (twin is None and (mess.attacked or mess.trouble is not None)):
        raise ValueError(f"stream: {stream.family.name} is scored by its mess, its journal and its calm twin")
    moved = _moved(stream, routed, twin) if twin is not None and mess.attacked else None
    wrongly = wrongly_set_aside(routed)
    missed = max(0, routed.lying[-1][1] - (journal.set_aside[-1][1] if journal.set_aside else 0))
    return MessScore(
        wrong_quarantined=float(wrongly.max(initial=0.0)),
        wrong_quarantined_mean=float(wrongly.mean()) if len(wrongly) else 0.0,
        missed_lies=missed if mess.attacked else None,
        audits=journal.audits,
        all_alarms=len(routed.alarms),
        load=_load(stream, routed),
        highest_rate=_highest_rate(stream, routed),
        highest_rate_calm=None if twin is None else _highest_rate(stream, twin),
        micro_f1_moved=None if moved is None else moved[0],
        micro_f1_moved_most=None if moved is None else moved[1],
        cost_moved=None if moved is None else moved[2],
    )


def wrongly_set_aside(routed: Routed) -> Floats:
    """Return, at each look, how many more labels were set aside than were not the truth."""
    looks = [] if routed.journal is None else routed.journal.set_aside
    set_aside = np.array([count for _, count in looks], dtype=np.float64)
    return np.maximum(0.0, set_aside - _lying_at(routed, [number for number, _ in looks]))


def _lying_at(routed: Routed, numbers: list[int]) -> Floats:
    """Return how many standing labels were not the truth when the last chunk before so many queries was over."""
    counts = dict(routed.lying)
    return np.array([counts.get(number, 0) for number in numbers], dtype=np.float64)


def _moved(stream: Stream, routed: Routed, twin: Routed) -> tuple[float, float, float]:
    quality = [expected_micro_f1(stream, one.served_by_large) for one in (routed, twin)]
    cost = [mean_cost(one.large_ran) for one in (routed, twin)]
    apart = quality[0] - quality[1]
    return float(apart.mean()), float(np.abs(apart).max()), cost[0] / cost[1] - 1.0


def _load(stream: Stream, routed: Routed) -> float | None:
    mess = stream.family.mess
    if mess is None or mess.large is None:
        return None
    first, end = mess.large.spell.span(len(stream))
    before = float(routed.attempts[max(0, first - AROUND) : first].mean()) if first else 0.0
    return float(routed.attempts[first:end].mean()) / before if before > 0.0 else None


def _highest_rate(stream: Stream, routed: Routed) -> float | None:
    mess, journal = stream.family.mess, routed.journal
    if mess is None or mess.trouble is None or journal is None:
        return None
    first, end = mess.trouble.span(len(stream))
    usual = np.sort(stream.u[max(0, first - AROUND) : first])
    before = [threshold for number, threshold in journal.published if number <= first]
    during = [threshold for number, threshold in journal.published if first < number <= end + AROUND]
    if not before or not len(usual):
        return None
    rate, highest = (float(np.mean(usual > threshold)) for threshold in (before[-1], min([*during, before[-1]])))
    return highest / rate if rate > 0.0 else None
