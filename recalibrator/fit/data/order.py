"""Contributions in the order of a key: newcomers flow in as they arrive, a sorted list of slots flows out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Order:
    """The slots of a table sorted by one of its columns, equal keys by slot.

    Parameters
    ----------
    room : int
        Rows of the table.

    Examples
    --------
    >>> order, keys = Order(4), np.array([3.0, 1.0, 2.0, 1.0])
    >>> order.merge(keys[:2]).tolist(), order.merge(keys).tolist()
    ([1, 0], [1, 3, 2, 0])
    """

    def __init__(self, room: int) -> None:
        self._slots = np.empty(room, dtype=np.intp)
        self._keys = np.empty(room)
        self._known = 0

    def forget(self) -> None:
        """Sort anew next time: keys have changed or rows have moved."""
        self._known = 0

    def merge(self, column: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return all slots in order; costs what lies behind the first of those that came since the last call.

        Parameters
        ----------
        column : ndarray, shape (rows,)
            The keys; NaN comes last. Those known before have not changed.

        Returns
        -------
        ndarray of int, shape (rows,)
            Valid until the next call.
        """
        known, count = self._known, len(column)
        if known < count:
            fresh = column[known:]
            slots = np.argsort(fresh, kind="stable")
            fresh, slots = fresh[slots], slots + known
            places = np.searchsorted(self._keys[:known], fresh, side="right")
            first = int(places[0])
            places += np.arange(len(places)) - first
            stays = np.ones(count - first, dtype=bool)
            stays[places] = False
            for ordered, newcomers in ((self._slots, slots), (self._keys, fresh)):
                former = ordered[first:known].copy()
                tail = ordered[first:count]
                tail[stays], tail[places] = former, newcomers
            self._known = count
        return self._slots[:count]

    @property
    def keys(self) -> NDArray[np.float64]:
        """The keys in order, as of the last :meth:`merge`."""
        return self._keys[: self._known]
