"""The metadata of an offset commit, which records the offsets that are done beyond the committed one.

Kafka keeps this short text beside the committed offset, and a restart reads the same ranges back from it. A text that
was not written for exactly this offset never becomes ranges: to skip a query that nobody answered would be to lose it.

The text is one version character and the unpadded base64url form of: CRC-32 over the committed offset and the body
(4 bytes), then the body, two LEB128 numbers a range: the distance of its first offset from the end of the range
before (at first: from the committed offset), and how many offsets follow its first.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Sequence
from typing import NamedTuple
from zlib import crc32

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


def encode(committed: int, ranges: Sequence[OffsetRange]) -> str:
    """Write ranges as commit metadata.

    ``committed``: the offset that is committed with them, at least 0. Empty when there are no ranges. May exceed
    ``MAX_METADATA_CHARS``: see :func:`fits`.

    Examples
    --------
    >>> text = encode(100, [OffsetRange(101, 5_000), OffsetRange(5_002, 5_002)])
    >>> len(text), decode(100, text)
    (13, (OffsetRange(first=101, last=5000), OffsetRange(first=5002, last=5002)))
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

    Examples
    --------
    >>> decode(7, ""), decode(7, "written by another tool")
    ((), None)
    """
    if not text:
        return ()
    if not text.startswith(_VERSION) or not text.isascii():
        return None
    packed = text[len(_VERSION) :]
    try:
        data = urlsafe_b64decode(packed + "=" * (-len(packed) % 4))
    except (Base64Error, ValueError):
        return None
    body = data[_CRC_BYTES:]
    if len(data) <= _CRC_BYTES or data[:_CRC_BYTES] != _checksum(committed, body):
        return None
    return _ranges(committed, body)


def fits(text: str, limit: int = MAX_METADATA_CHARS) -> bool:
    """Whether a broker takes a text of this length that takes so many characters."""
    return len(text) <= limit


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
    return {source.partition: _committed(source, commit, on_foreign) for source, commit in found.items()}


def _committed(
    source: Input, commit: OffsetCommit | None, on_foreign: Callable[[Input, OffsetCommit], None]
) -> CommittedOffsets:
    if commit is None:
        return CommittedOffsets(None)
    done = decode(commit.offset, commit.metadata)
    if done is None:
        on_foreign(source, commit)
    return CommittedOffsets(commit.offset, done or ())
