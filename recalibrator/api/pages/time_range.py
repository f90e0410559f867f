"""Which stretch of time the charts show: named in the address, so that a link shows others the same. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from recalibrator.api.read_model.aging import Dated

DEFAULT_RANGE = "24h"

_SPANS = {
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "all": None,
}
_LABELS = {"1h": "1 h", "6h": "6 h", "24h": "24 h", "7d": "7 d", "all": "All"}
_WORDS = {
    "1h": "the last hour",
    "6h": "the last 6 hours",
    "24h": "the last 24 hours",
    "7d": "the last 7 days",
    "all": "all that is kept",
}
_LEAST = timedelta(minutes=1)
"""A chart is never shorter, as in a service's first seconds."""

_Point = TypeVar("_Point", bound=Dated)

RANGES = tuple(_SPANS)
"""As they stand in the address."""


class Window(NamedTuple):
    """A stretch of time, of :attr:`begin` < :attr:`end`."""

    begin: datetime
    end: datetime

    def of(self, points: Sequence[_Point]) -> list[_Point]:
        """Return the points within, and the last one before, from which a line comes in."""
        inside = [point for point in points if self.begin <= point.at <= self.end]
        before = [point for point in points if point.at < self.begin]
        return [*before[-1:], *inside]


class TimeRange(NamedTuple):
    """One of :data:`RANGES`."""

    name: str

    @classmethod
    def named(cls, name: str) -> TimeRange:
        """Return the range of that name; the default where there is none, as a mistyped address should show a page.

        Examples
        --------
        >>> TimeRange.named("6h").label, TimeRange.named("6 hours").label
        ('6 h', '24 h')
        """
        return cls(name if name in _SPANS else DEFAULT_RANGE)

    @property
    def label(self) -> str:
        """What its link is called."""
        return _LABELS[self.name]

    @property
    def words(self) -> str:
        """The range as a phrase."""
        return _WORDS[self.name]

    def window(self, now: datetime, known: datetime | None) -> Window:
        """Return the stretch of time to draw: up to now, and from no earlier than the first that is known.

        Parameters
        ----------
        known : datetime or None
            When the first known point was; None where there is none.
        """
        span = _SPANS[self.name]
        earliest = now - _LEAST if known is None else known
        begin = earliest if span is None else max(now - span, earliest)
        return Window(min(begin, now - _LEAST), now)
