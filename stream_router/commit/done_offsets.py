"""Which offset of a partition to commit while its queries are done in any order, and which are done beyond it.

A tracker notes each offset as it is delivered and again as it is done, and keeps the contiguous frontier and the done
ranges beyond it. The frontier never passes a delivered offset that is not done. Offsets have gaps (transaction markers,
aborted records): what was not delivered between two deliveries never will be, so a gap neither holds the frontier
nor splits a range.

The ranges go into the metadata of the commit: Kafka keeps this short text beside the committed offset, and a restart
reads the same ranges back from it. A text that was not written for exactly this offset never becomes ranges: to skip a
query that nobody answered would be to lose it.

The text is one version character and the unpadded base64url form of: CRC-32 over the committed offset and the body
(4 bytes), then the body, two LEB128 numbers a range: the distance of its first offset from the end of the range
before (at first: from the committed offset), and how many offsets follow its first.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import deque
from collections.abc import Callable, Container, Sequence
from typing import NamedTuple
from zlib import crc32

from stream_router.errors import OffsetsWentBack
from ucci_runtime.broker.ports import GroupOffsets
from ucci_runtime.broker.records import Input, OffsetCommit

#: Longest text written, where the broker takes it: Kafka's default ``offset.metadata.max.bytes`` is 4,096.
MAX_METADATA_CHARS = 4_000

_VERSION = "1"
_CRC_BYTES = 4
_MAX_OFFSET = 2**63 - 1
_SEVEN_BITS = 0x7F
_MORE = 0x80


class OffsetRange(NamedTuple):
    """Offsets from ``first`` to ``last``, both included."""

    first: int
    last: int


class CommittedOffsets(NamedTuple):
    """What the group has committed for one partition: the next offset, None at first, and what is done beyond it."""

    offset: int | None
    done: tuple[OffsetRange, ...] = ()

    def covers(self, offset: int) -> bool:
        """Whether the offset's result is committed."""
        if self.offset is None:
            return False
        return offset < self.offset or any(first <= offset <= last for first, last in self.done)


class CompletionTracker:
    """The progress of one assigned partition.

    ``committed``: the group's committed offset, where delivery starts; None when there is none. ``done``: what the
    commit's metadata says is done beyond it: delivered again, but not to be answered again. ``position``: the next
    offset to be delivered, as far as is known.
    """

    def __init__(self, committed: int | None, done: Sequence[OffsetRange] = ()) -> None:
        self.position = committed
        self._last_delivered: int | None = None
        # Each unfinished offset, in delivered order, with the delivery before it: between two unfinished ones
        # something is done exactly when the later's predecessor is not the earlier.
        self._unfinished: dict[int, int | None] = {}
        self._done_ahead = deque(done)

    def is_unfinished(self, offset: int) -> bool:
        """Whether the offset was delivered and is not done."""
        return offset in self._unfinished

    def deliver(self, offset: int) -> bool:
        """Note a delivery.

        Returns whether it needs an answer; False when the commit's metadata says that it is done. Raises
        OffsetsWentBack when the offset is below one that was delivered before.
        """
        if self.position is not None and offset < self.position:
            if self._last_delivered is not None:
                raise OffsetsWentBack(offset, self.position)
            # The log no longer reaches the committed offset: it was cut or recreated, and the ranges with it.
            self._done_ahead.clear()
        before, self._last_delivered = self._last_delivered, offset
        self.position = offset + 1
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
        if self.position is None or position > self.position:
            self.position = position

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
        if self.position is None:
            return None
        left = iter([(offset, before) for offset, before in self._unfinished.items() if offset not in also_done])
        first, _ = next(left, (self.position, None))
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


def encode(committed: int, ranges: Sequence[OffsetRange]) -> str:
    """Write ranges as commit metadata.

    ``committed``: the offset that is committed with them, at least 0. Empty when there are no ranges. May exceed
    ``MAX_METADATA_CHARS``.
    """
    if not ranges:
        return ""
    body = bytearray()
    end = committed
    for first, last in ranges:
        if first < end or last < first:
            raise ValueError(f"range {first}..{last} is empty, overlaps or lies below {end}")
        _append_number(body, first - end)
        _append_number(body, last - first)
        end = last + 1
    return _VERSION + urlsafe_b64encode(_checksum(committed, body) + body).rstrip(b"=").decode("ascii")


def decode(committed: int, text: str | None) -> tuple[OffsetRange, ...] | None:
    """Read ranges back from commit metadata.

    ``committed``: the offset that was committed with the text. Empty when there is no metadata; None when the text is
    not ours, damaged, or belongs to another offset.
    """
    if not text:
        return ()
    if not text.startswith(_VERSION):
        return None
    packed = text[len(_VERSION) :]
    try:
        data = urlsafe_b64decode(packed + "=" * (-len(packed) % 4))
    except ValueError:
        return None
    body = data[_CRC_BYTES:]
    if len(data) <= _CRC_BYTES or data[:_CRC_BYTES] != _checksum(committed, body):
        return None
    return _ranges(committed, body)


def _checksum(committed: int, body: bytes | bytearray) -> bytes:
    return crc32(body, crc32(committed.to_bytes(8, "big"))).to_bytes(_CRC_BYTES, "big")


def _append_number(body: bytearray, number: int) -> None:
    while number > _SEVEN_BITS:
        body.append(number & _SEVEN_BITS | _MORE)
        number >>= 7
    body.append(number)


def _ranges(committed: int, body: bytes) -> tuple[OffsetRange, ...] | None:
    numbers: list[int] = []
    number = shift = 0
    for byte in body:
        number |= (byte & _SEVEN_BITS) << shift
        shift += 7
        if not byte & _MORE:
            numbers.append(number)
            number = shift = 0
    if shift or len(numbers) % 2:
        return None
    ranges = []
    end = committed
    for distance, length in zip(numbers[::2], numbers[1::2], strict=True):
        first = end + distance
        end = first + length + 1
        ranges.append(OffsetRange(first, end - 1))
    return tuple(ranges) if end <= _MAX_OFFSET else None


def committed_offsets(
    found: GroupOffsets, on_foreign: Callable[[Input, OffsetCommit], None]
) -> dict[int, CommittedOffsets]:
    """Read a group's offsets of one topic, by partition.

    ``on_foreign``: called with each offset whose metadata is not this router's: nothing beyond it counts as done.
    """
    read = {}
    for source, commit in found.items():
        done = () if commit is None else decode(commit.offset, commit.metadata)
        if commit is not None and done is None:
            on_foreign(source, commit)
        read[source.partition] = CommittedOffsets(None if commit is None else commit.offset, done or ())
    return read
