"""Reads the queries topic: each record is a query of a configured workload, or is refused with a reason and one line.

Nothing half-valid gets through: every query that does names a configured workload.
"""

from __future__ import annotations

from collections.abc import Collection

from schemas.errors import DecodeError
from schemas.query import QueryEvent
from schemas.wire_format import unframed

_NAMES_SHOWN = 10
_CHARS_SHOWN = 60


def decode_query(
    value: bytes | None, workloads: Collection[str], default_workload: str | None = None
) -> tuple[QueryEvent, str]:
    """Read one record.

    ``default_workload``: one of them, for queries that name none; the only one needs no default. Returns the query and
    its workload. Raises DecodeError: reason ``tombstone``, ``empty``, ``too_large``, ``not_utf8``, ``not_json``,
    ``not_an_object``, ``missing_field``, ``invalid_field``, ``duplicate_key``, ``missing_workload`` or
    ``unknown_workload``.
    """
    if value is None:
        raise DecodeError("tombstone", "the record has no value: send a QueryEvent as JSON")
    if not value:
        raise DecodeError("empty", "the value is empty: send a QueryEvent as JSON")
    document = unframed(value)
    try:
        query = QueryEvent.from_json(document)
    except DecodeError as error:
        raise _named(document, error) from None
    return query, _workload(query.workload or default_workload, workloads)


def _named(value: bytes, error: DecodeError) -> DecodeError:
    """Distinguish the faults that the parser reports under one reason."""
    if error.reason == "not_json":
        try:
            value.decode()
        except UnicodeDecodeError as undecodable:
            return DecodeError("not_utf8", f"not UTF-8: {undecodable.reason} at byte {undecodable.start}")
    if error.reason == "invalid_field" and error.field is None:
        return DecodeError("not_an_object", str(error))
    return error


def _workload(name: str | None, workloads: Collection[str]) -> str:
    if name is not None and name in workloads:
        return name
    if name is None and len(workloads) == 1:
        return next(iter(workloads))
    known = ", ".join(sorted(workloads)[:_NAMES_SHOWN])
    if name is None:
        raise DecodeError(
            "missing_workload",
            f"workload: is missing and several are configured: {known}; name one, or set default_workload",
            "workload",
        )
    shown = name[:_CHARS_SHOWN]
    raise DecodeError("unknown_workload", f"workload: {shown!r} is not configured; known: {known}", "workload")
