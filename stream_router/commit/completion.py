"""Which offset of a partition to commit while its queries are done in any order, and which are done beyond it.

A tracker notes each offset as it is delivered and again as it is done, and keeps the contiguous frontier and the done
ranges beyond it. The frontier never passes a delivered offset that is not done. Offsets have gaps (transaction markers,
aborted records): what was not delivered between two deliveries never will be, so a gap neither holds the frontier
nor splits a range.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Sequence

from stream_router.commit.done_offsets import OffsetRange
from stream_router.errors import OffsetsWentBack


class CompletionTracker:
    """The progress of one assigned partition.

    Parameters
    ----------
    committed : int or None
        The group's committed offset, where delivery starts; None when there is none.
    done : sequence of OffsetRange
        What the commit's metadata says is done beyond it: delivered again, but not to be answered again.
    """

    __slots__ = ("_done_ahead", "_last_delivered", "_position", "_unfinished")

    def __init__(self, committed: int | None, done: Sequence[OffsetRange] = ()) -> None:
        self._position = committed
        self._last_delivered: int | None = None
        # Each unfinished offset, in delivered order, with the delivery before it: between two unfinished ones
        # something is done exactly when the later's predecessor is not the earlier.
        self._unfinished: dict[int, int | None] = {}
        self._done_ahead = deque(done)

    @property
    def position(self) -> int | None:
        """The next offset to be delivered, as far as is known."""
        return self._position

    def is_unfinished(self, offset: int) -> bool:
        """Whether the offset was delivered and is not done."""
        return offset in self._unfinished

    def deliver(self, offset: int) -> bool:
        """Note a delivery.

        Returns whether it needs an answer; False when the commit's metadata says that it is done. Raises
        OffsetsWentBack when the offset is below one that was delivered before.
        """
        if self._position is not None and offset < self._position:
            if self._last_delivered is not None:
                raise OffsetsWentBack(offset, self._position)
            # The log no longer reaches the committed offset: it was cut or recreated, and the ranges with it.
            self._done_ahead.clear()
        before, self._last_delivered = self._last_delivered, offset
        self._position = offset + 1
        while self._done_ahead and self._done_ahead[0].last < offset:
            self._done_ahead.popleft()
        if self._done_ahead and self._done_ahead[0].first <= offset:
            return False
        self._unfinished[offset] = before
        return True

    def done(self, offset: int) -> None:
        """Note that a delivered offset is done. Raises KeyError when it is not unfinished."""
        del self._unfinished[offset]

    def advance(self, position: int) -> None:
        """Note that everything below ``position`` has been delivered, markers included.

        This is what lets the committed offset reach the end of the log (lag 0) behind a transaction marker.
        """
        if self._position is None or position > self._position:
            self._position = position

    def commit(self, also_done: Container[int] = ()) -> tuple[int, tuple[OffsetRange, ...]] | None:
        """Return what may be committed.

        ``also_done``: offsets whose results are committed in the same transaction. Returns the next offset to read, and
        the ranges done beyond it; None while nothing is known.

        Examples
        --------
        >>> frontier = CompletionTracker(0)
        >>> needs_answer = [frontier.deliver(offset) for offset in (0, 1, 3, 4)]  # 2 is a transaction marker
        >>> frontier.commit(also_done={1, 3})
        (0, (OffsetRange(first=1, last=3),))
        >>> frontier.commit(also_done={0, 1, 3, 4})
        (5, ())
        """
        if self._position is None:
            return None
        left = iter([(offset, before) for offset, before in self._unfinished.items() if offset not in also_done])
        first, _ = next(left, (self._position, None))
        ranges = []
        end = first
        for offset, before in left:
            if before is not None and before > end:
                ranges.append(OffsetRange(end + 1, before))
            end = offset
        if self._last_delivered is not None and self._last_delivered > end:
            ranges.append(OffsetRange(end + 1, self._last_delivered))
        for ahead in self._done_ahead:
            start = max(ahead.first, first)
            if ranges and start <= ranges[-1].last + 1:
                ranges[-1] = OffsetRange(ranges[-1].first, max(ahead.last, ranges[-1].last))
            elif start <= ahead.last:
                ranges.append(OffsetRange(start, ahead.last))
        return first, tuple(ranges)
