"""Records that no client library writes: a produce request of our own, with any bytes for a header's key."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from typing import NamedTuple

_TIMEOUT_S = 30.0
_POLYNOMIAL = 0x82F63B78


class RawRecord(NamedTuple):
    key: bytes
    value: bytes
    headers: Sequence[tuple[bytes, bytes]] = ()


def produce_raw(bootstrap: str, topic: str, records: Sequence[RawRecord], partition: int = 0) -> None:
    """Write one batch by a Produce request, version 3, and wait until the broker has taken it."""
    batch = _batch(records)
    body = struct.pack(">hhi", -1, -1, int(_TIMEOUT_S * 1_000))
    body += struct.pack(">i", 1) + _text(topic) + struct.pack(">iii", 1, partition, len(batch)) + batch
    request = struct.pack(">hhi", 0, 3, 1) + _text("raw") + body
    answer = _answer(bootstrap, request)
    # Correlation id, one topic by name, one partition: its number and error code.
    (code,) = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(topic.encode()) + 4 + 4)
    assert code == 0, f"the broker refused the batch: code {code}"


def _batch(records: Sequence[RawRecord]) -> bytes:
    now_ms = int(time.time() * 1_000)
    packed = b"".join(_record(number, record) for number, record in enumerate(records))
    checked = struct.pack(">hiqqqhii", 0, len(records) - 1, now_ms, now_ms, -1, -1, -1, len(records)) + packed
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, _crc32c(checked)) + checked


def _record(number: int, record: RawRecord) -> bytes:
    body = b"\0" + _varint(0) + _varint(number) + _bytes(record.key) + _bytes(record.value)
    body += _varint(len(record.headers)) + b"".join(_bytes(name) + _bytes(value) for name, value in record.headers)
    return _varint(len(body)) + body


def _bytes(value: bytes) -> bytes:
    return _varint(len(value)) + value


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value.encode())) + value.encode()


def _varint(number: int) -> bytes:
    left, packed = (number << 1) ^ (number >> 63), bytearray()
    while left > 0x7F:
        packed.append(left & 0x7F | 0x80)
        left >>= 7
    packed.append(left)
    return bytes(packed)


def _crc32c(data: bytes) -> int:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _answer(bootstrap: str, request: bytes) -> bytes:
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), _TIMEOUT_S) as connection, connection.makefile("rb") as answers:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", answers.read(4))
        return answers.read(size)


def write_commit_markers(bootstrap: str, producer: tuple[int, int], places: Sequence[tuple[str, int]]) -> None:
    """End a producer's transaction in some partitions only, by WriteTxnMarkers, version 1: what a coordinator sends."""
    topics = b"".join(
        bytes([len(topic) + 1]) + topic.encode() + bytes([2]) + struct.pack(">i", partition) + b"\0"
        for topic, partition in places
    )
    marker = struct.pack(">qh?", *producer, True) + bytes([len(places) + 1]) + topics + struct.pack(">i", 0) + b"\0"
    request = struct.pack(">hhi", 27, 1, 1) + _text("raw") + b"\0" + bytes([2]) + marker + b"\0"
    answer = _answer(bootstrap, request)
    # Correlation id, tags, one marker: producer id; then each topic: name, one partition's number and error code, tags.
    at = 4 + 1 + 1 + 8 + 1
    for _ in places:
        at += answer[at] + 1
        assert struct.unpack_from(">h", answer, at + 4) == (0,), f"the broker refused a marker: {answer!r}"
        at += 4 + 2 + 1 + 1
