"""The time that one query may spend at model servers, and how much of it is left. Pure."""

from __future__ import annotations

from math import inf


class QueryTime:
    """What is left of a query's time.

    Parameters
    ----------
    most_s : float
        By default there is no bound.
    reserved_s : float
        Of it, what is kept for calls to come.

    Examples
    --------
    >>> time = QueryTime(most_s=10.0, reserved_s=2.0)
    >>> time.spend(5.0)
    >>> time.left_s
    3.0
    >>> time.release()
    >>> time.left_s
    5.0
    """

    __slots__ = ("_reserved_s", "_spent_s", "most_s")

    def __init__(self, most_s: float = inf, reserved_s: float = 0.0) -> None:
        self.most_s = most_s
        self._reserved_s = reserved_s
        self._spent_s = 0.0

    @property
    def left_s(self) -> float:
        """What the present call may spend; 0 where nothing is left."""
        return max(0.0, self.most_s - self._spent_s - self._reserved_s)

    def release(self) -> None:
        """Let the present call spend what was kept for it."""
        self._reserved_s = 0.0

    def spend(self, seconds: float) -> None:
        """Take what a call has spent."""
        self._spent_s += seconds
