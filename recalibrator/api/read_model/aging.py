"""Series that grow coarser with age: bounded in number, and never empty in any of the spans that people look at. Pure.

Of a series with one point every few seconds, the latest hour, six hours, day and week keep some 120 points each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol, TypeVar

#: Of a series; beyond it the older points are merged.
MAX_POINTS = 720

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Up to which age points are merged to one for how long a time.
_STEPS = (
    (timedelta(hours=1), timedelta(seconds=30)),
    (timedelta(hours=6), timedelta(seconds=150)),
    (timedelta(days=1), timedelta(minutes=9)),
    (timedelta(days=7), timedelta(minutes=72)),
)

#: Points older than all of these.
_OLDER = 120


class Dated(Protocol):
    """A point of a series."""

    @property
    def at(self) -> datetime:
        """When."""
        ...


_Point = TypeVar("_Point", bound=Dated)


def latter(_earlier: _Point, later: _Point) -> _Point:
    """Merge two points of a state: the later one stands for both."""
    return later


def aged(points: Sequence[_Point], merge: Callable[[_Point, _Point], _Point]) -> list[_Point]:
    """Return a series with its older points merged; the first and the last stay as they are.

    Parameters
    ----------
    points : sequence
        Oldest first.
    merge : callable
        Makes one point of an earlier and a later one.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> days = [SimpleNamespace(at=_EPOCH + timedelta(seconds=10 * n)) for n in range(8640)]
    >>> kept = aged(days, latter)
    >>> len(kept), kept[0] is days[0], kept[-1] is days[-1]
    (364, True, True)
    """
    if not points:
        return []
    first, last = points[0], points[-1]
    between = _merged(points[1:-1], first.at, last.at, merge)
    return [first] if first is last else [first, *between, last]


def _merged(
    points: Sequence[_Point], begin: datetime, end: datetime, merge: Callable[[_Point, _Point], _Point]
) -> Iterator[_Point]:
    longest = _STEPS[-1][1]
    while (end - begin) / longest > _OLDER:
        # Doubled, so that what was merged before is merged on and never split again.
        longest *= 2
    open_bin, held = None, None
    for point in points:
        step = next((step for age, step in _STEPS if end - point.at <= age), longest)
        place = (step, (point.at - _EPOCH) // step)
        if held is not None and place == open_bin:
            held = merge(held, point)
            continue
        if held is not None:
            yield held
        open_bin, held = place, point
    if held is not None:
        yield held
