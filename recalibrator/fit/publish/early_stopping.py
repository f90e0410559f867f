"""When versions have small calls stopped, and what is known of the calls that were."""

from __future__ import annotations

from collections.abc import Mapping

from recalibrator.fit.data.traffic_window import TrafficWindow
from schemas.calibration import CalibrationVersion
from schemas.early_stop import EarlyStop
from schemas.event import MAX_INTEGER
from schemas.settings import WorkloadSettings
from schemas.status import EarlyStopStatus

_MOVED = 0.1
"""Of the longest length: a version is published for it beyond this change, and takes smaller ones with it."""


_LENGTHS_LEAST = 200
"""Lengths of answers that are known before a quantile of them is."""


def longest(lengths: Mapping[int, int], quantile: float) -> int | None:
    """Return a quantile of the lengths of answers, in tokens; None while few are known.

    Parameters
    ----------
    lengths : mapping of int to int
        How many answers had so many tokens.
    quantile : float
        In (0, 1].

    Examples
    --------
    >>> longest({10: 500, 20: 400, 90: 100}, 0.9), longest({10: 5}, 0.9)
    (20, None)
    """
    below, known = 0, sum(lengths.values())
    for length in sorted(lengths) if known >= _LENGTHS_LEAST else ():
        below += lengths[length]
        if below >= quantile * known:
            return max(1, length)
    return None


class EarlyStopping:
    """Early stop of one workload.

    Parameters
    ----------
    settings : WorkloadSettings
    """

    def __init__(self, settings: WorkloadSettings) -> None:
        self._settings = settings.early_stop
        self._longest = settings.max_tokens

    def in_versions(self, traffic: TrafficWindow) -> EarlyStop | None:
        """Return what new versions say of it; None where nothing is to be stopped, or lengths are not known yet."""
        if self._settings is None:
            return None
        found = longest(traffic.lengths, self._settings.length_quantile)
        if found is None:
            return None
        return EarlyStop(longest=min(found, self._longest), full_share=self._settings.full_share)

    def is_news(self, in_force: EarlyStop | None, offered: EarlyStop | None) -> bool:
        """Whether a version is worth publishing for it."""
        if offered is None:
            return False
        if in_force is None or in_force.full_share != offered.full_share:
            return True
        return abs(offered.longest - in_force.longest) > _MOVED * in_force.longest

    def status(self, current: CalibrationVersion | None, traffic: TrafficWindow) -> EarlyStopStatus | None:
        """Return what is known of it, for people; None where it is not configured."""
        if self._settings is None:
            return None
        in_force = None if current is None else current.early_stop
        recent, total = traffic.recent, traffic.total
        return EarlyStopStatus(
            longest=None if in_force is None else in_force.longest,
            full_share=self._settings.full_share,
            stopped_share=min(1.0, recent["stopped"] / recent["queries"]) if recent["queries"] else None,
            needless_share=traffic.seen.needless_share,
            overtaken=min(MAX_INTEGER, int(total["overtaken"])),
            repeated=min(MAX_INTEGER, int(total["repeated"])),
        )
