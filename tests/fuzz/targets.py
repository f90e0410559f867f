"""What is fuzzed: each target reads bytes as a part of the service does, and says how it ended.

A target returns an *outcome*: a short word for each way of ending, such as the reason and the field of a refusal. It
lets only the error class through to the outcome that the part documents; anything else is a finding, and so is a
refusal that is not one short line or does not name the field that it blames.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from schemas.errors import DecodeError

#: Of an error for people; the header of a dead letter holds no more.
MAX_LINE_CHARS = 1_000

#: Separates the parts of an input that has several: key and value of a record, head and body of a request.
PART = b"\x1e"

_UNPRINTABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})


class Violation(AssertionError):
    """An invariant that every input must keep, broken by one."""


@dataclass(frozen=True, slots=True)
class Target:
    """One part that reads bytes from outside."""

    name: str
    #: Valid inputs.
    seeds: Sequence[bytes]
    #: Reads one input and returns its outcome; raises for whatever is a finding.
    run: Callable[[bytes], str]
    #: How often it is chosen, against 1 for most; below 1 for those that are slow.
    weight: float = 1.0


def require_line(text: str, named: str | None = None) -> None:
    """Require an error to be one line, short, without control characters, that names what it blames.

    Raises Violation.
    """
    if not text.strip():
        raise Violation("the error says nothing")
    if len(text) > MAX_LINE_CHARS:
        raise Violation(f"the error has {len(text)} characters")
    if found := {
        unicodedata.name(one, f"U+{ord(one):04X}") for one in text if unicodedata.category(one) in _UNPRINTABLE
    }:
        raise Violation(f"the error is not one printable line: {', '.join(sorted(found)[:3])}")
    if named is not None and named not in text:
        raise Violation(f"the error does not name the field that it blames: {named[:60]!r}")


def refused(error: DecodeError) -> str:
    """Return the outcome of a refused record, once its error is found to be a good one. Raises Violation."""
    require_line(str(error), error.field)
    return f"{error.reason} {generic(error.field)}"


def generic(field: str | None) -> str:
    """Return a field's path without what the sender chose in it."""
    parts = (field or "").split(".")[:6]
    return ".".join(part if part.isidentifier() and len(part) < 30 else "*" for part in parts)


def parts_of(data: bytes, count: int) -> tuple[bytes, ...]:
    found = data.split(PART, count - 1)
    return (*found, *(b"" for _ in range(count - len(found))))
