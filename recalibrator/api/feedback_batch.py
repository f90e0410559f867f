"""One batch of feedback on its way: what became of each line flows in, the answer's lines flow out in order.

Lines whose fate is known at once and lines that wait for the broker's acknowledgement are held together until the next
:meth:`FeedbackBatch.settle`, then kept as text only, so that a batch takes little more memory than its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from recalibrator.api.http_answers import error_body
from recalibrator.errors import Refused
from schemas.feedback import FeedbackEvent

MAX_UNSETTLED = 1_000
"""Lines after which the batch waits for the broker, and other requests have their turn: some 40 ms."""

_ACCEPTED, _UNAVAILABLE = 202, 503


@dataclass(frozen=True, slots=True)
class _Waiting:
    event: FeedbackEvent
    acknowledged: asyncio.Future[None]


class FeedbackBatch:
    """The lines of one batch.

    Parameters
    ----------
    on_taken : callable
        Called with each event that the broker has acknowledged.
    """

    def __init__(self, on_taken: Callable[[FeedbackEvent], None]) -> None:
        self._on_taken = on_taken
        self._unsettled: list[tuple[int, Refused | _Waiting]] = []
        self._answer = bytearray()
        self._statuses: set[int] = set()
        self.lines = 0

    def refuse(self, number: int, error: Refused) -> None:
        """Note that a line is not taken."""
        self.lines += 1
        self._unsettled.append((number, error))

    def await_broker(self, number: int, event: FeedbackEvent, acknowledged: asyncio.Future[None]) -> None:
        """Note that a line is on its way to the broker."""
        self.lines += 1
        self._unsettled.append((number, _Waiting(event, acknowledged)))

    @property
    def is_full(self) -> bool:
        """Whether it is time to settle."""
        return len(self._unsettled) >= MAX_UNSETTLED

    async def settle(self) -> None:
        """Wait until the broker has answered for every line so far."""
        waiting = [one for _, one in self._unsettled if isinstance(one, _Waiting)]
        if waiting:
            await asyncio.wait([one.acknowledged for one in waiting])
        else:
            await asyncio.sleep(0)
        for number, one in self._unsettled:
            if isinstance(one, Refused):
                self._add(number, one.status, error_body(one.code, str(one), one.field)["error"])
            elif (failure := one.acknowledged.exception()) is not None:
                self._add(number, _UNAVAILABLE, error_body("broker_away", str(failure))["error"])
            else:
                self._on_taken(one.event)
                self._add(number, _ACCEPTED, None)
        self._unsettled.clear()

    @property
    def all_taken(self) -> bool:
        """Whether every line is in the topic."""
        return self._statuses <= {_ACCEPTED}

    @property
    def none_acknowledged(self) -> bool:
        """Whether the broker was the only reason for every line that is not taken, and none is."""
        return self._statuses == {_UNAVAILABLE}

    def answer(self) -> bytes:
        """Return ``{"line", "status", "error"}`` a line, in the lines' order."""
        return bytes(self._answer)

    def _add(self, number: int, status: int, error: dict[str, Any] | None) -> None:
        self._statuses.add(status)
        self._answer += to_json({"line": number, "status": status, "error": error}) + b"\n"
