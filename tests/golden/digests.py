"""JSON → digests that survive another last digit: floats are rounded before they are hashed."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

#: Processors differ in the last digits of exp, log and sums; of 200,000 numbers rounded to nine digits, one stands near
#: enough to a boundary to fall on its other side.
_SIGNIFICANT = 6
#: What lies below is what is left of a difference of equal numbers, and no two machines agree on it.
_NOISE = 1e-12


def rounded(text: bytes) -> Any:
    """Return a JSON value with every float at six significant digits, and whole ones as integers."""
    return json.loads(text, parse_float=_rounded)


def _rounded(text: str) -> float | int:
    value = float(text)
    near = float(f"{value:.{_SIGNIFICANT}g}") if abs(value) >= _NOISE else 0.0
    return int(near) if near.is_integer() else near


def canonical(value: Any) -> bytes:
    """Return the bytes to hash: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def digest(value: Any) -> str:
    """Return the digest of a JSON value whose floats are rounded already."""
    return sha256(canonical(value)).hexdigest()


class Segments:
    """Digests of what is taken in, one for each segment. ``length``: of a segment, in steps."""

    def __init__(self, length: int) -> None:
        self._length, self._steps = length, 0
        self._segment = sha256()
        self.digests: list[str] = []

    def take(self, document: Any) -> None:
        """Hash one document into the segment under way."""
        self._segment.update(canonical(document) + b"\n")

    def step(self) -> None:
        """Count one step, and close the segment where it is full."""
        self._steps += 1
        if self._steps % self._length == 0:
            self.digests.append(self._segment.hexdigest())
            self._segment = sha256()
