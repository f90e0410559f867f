"""What a Kafka request or answer says, as far as transactions go: read from its bytes, which are never altered.

Only the fields that a test needs are read; for every other kind of request the header alone.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

PRODUCE = "Produce"
HEARTBEAT = "Heartbeat"
INIT_PRODUCER_ID = "InitProducerId"
ADD_PARTITIONS = "AddPartitionsToTxn"
ADD_OFFSETS = "AddOffsetsToTxn"
END_TXN = "EndTxn"
TXN_OFFSET_COMMIT = "TxnOffsetCommit"

KINDS = {
    0: PRODUCE,
    12: HEARTBEAT,
    22: INIT_PRODUCER_ID,
    24: ADD_PARTITIONS,
    25: ADD_OFFSETS,
    26: END_TXN,
    28: TXN_OFFSET_COMMIT,
}
#: The requests of a transaction, by kind.
TRANSACTIONAL = (INIT_PRODUCER_ID, ADD_OFFSETS, TXN_OFFSET_COMMIT, ADD_PARTITIONS, PRODUCE, END_TXN)

#: The version from which a kind has compact lengths and tagged fields.
_FLEXIBLE_FROM = {PRODUCE: 9, INIT_PRODUCER_ID: 2, ADD_PARTITIONS: 3, ADD_OFFSETS: 3, END_TXN: 3, TXN_OFFSET_COMMIT: 3}


@dataclass(frozen=True, slots=True)
class Request:
    #: Its name in the protocol, or its number where the name is not known here.
    kind: str

    version: int
    correlation_id: int
    client_id: str
    #: Which of the proxy's connections it came on; they are numbered from 1.
    connection: int
    #: Empty where it has none.
    transactional_id: str = ""
    #: Id and epoch of the producer, where the request has them before what is not read here.
    producer: tuple[int, int] | None = None
    #: Whether an EndTxn commits.
    committed: bool | None = None

    is_flexible: bool = field(default=False, repr=False)


def read_request(frame: bytes, connection: int) -> Request:
    """Read a request; ``frame`` is without its size."""
    key, version, correlation_id = struct.unpack_from(">hhi", frame)
    kind = KINDS.get(key, str(key))
    is_flexible = version >= _FLEXIBLE_FROM.get(kind, 1 << 15)
    client_id = _Bytes(frame, 8, is_flexible=False).text()
    head = (kind, version, correlation_id, client_id, connection)
    if kind not in TRANSACTIONAL:
        return Request(*head)
    at = _Bytes(frame, 8 + 2 + len(client_id.encode()), is_flexible=is_flexible)
    at.tags()
    transactional_id, producer, committed = at.text(), None, None
    if kind == TXN_OFFSET_COMMIT:
        at.text()
    if kind in {ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT}:
        producer = (at.number("q"), at.number("h"))
    if kind == END_TXN:
        committed = bool(at.number("b"))
    return Request(*head, transactional_id, producer, committed, is_flexible)


def correlation_id_of(frame: bytes) -> int:
    """Return which request a frame answers."""
    return int(struct.unpack_from(">i", frame)[0])


def read_error(frame: bytes, request: Request) -> int:
    """Return the error of the answer to a transactional request, the first that is not 0 of several."""
    at = _Bytes(frame, 4, is_flexible=request.is_flexible)
    at.tags()
    if request.kind in {ADD_OFFSETS, END_TXN, INIT_PRODUCER_ID}:
        at.number("i")
        return at.number("h")
    if request.kind == PRODUCE:
        return _first_error(at, lambda: _produced(at, request.version))
    at.number("i")
    return _first_error(at, lambda: at.number("h"))


def _first_error(at: _Bytes, rest: Callable[[], int]) -> int:
    """Read topics of partitions, each with its number and ``rest``."""
    found: list[int] = []
    for _ in range(at.count()):
        at.text()
        for _ in range(at.count()):
            at.number("i")
            found.append(rest())
            at.tags()
        at.tags()
    return next((error for error in found if error), 0)


def _produced(at: _Bytes, version: int) -> int:
    """Read the rest of a partition's answer, from version 8 on with what was wrong with single records."""
    error = at.number("h")
    for code in ("q", "q", "q"):
        at.number(code)
    if version >= 8:
        for _ in range(at.count()):
            at.number("i")
            at.text()
            at.tags()
        at.text()
    return error


class _Bytes:
    """A cursor over Kafka's primitive types; flexible versions have compact lengths and tagged fields."""

    def __init__(self, data: bytes, at: int, *, is_flexible: bool) -> None:
        self._data = data
        self._at = at
        self._is_flexible = is_flexible

    def number(self, code: str) -> int:
        (found,) = struct.unpack_from(f">{code}", self._data, self._at)
        self._at += struct.calcsize(code)
        return int(found)

    def text(self) -> str:
        size = self._varint() - 1 if self._is_flexible else self.number("h")
        self._at += max(size, 0)
        return self._data[self._at - max(size, 0) : self._at].decode()

    def count(self) -> int:
        return self._varint() - 1 if self._is_flexible else self.number("i")

    def tags(self) -> None:
        for _ in range(self._varint() if self._is_flexible else 0):
            self._varint()
            self._at += self._varint()

    def _varint(self) -> int:
        found = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return found
            shift += 7
