"""Health of one model server, told from the outcomes of its calls. Pure: the state machine of a circuit breaker.

::

              failures in a row ≥ limit             probe answered
    CLOSED ──────────────────────────▶ OPEN ─────────────────────▶ CLOSED
                                       ▲  │ probe due
                                       │  ▼
                        probe failed ◀─ PROBING

Closed, calls go through. Open, they fail at once, so that nobody waits for a server that is down; a probe, a real
completion, decides when it is back.
"""

from __future__ import annotations

from enum import Enum


class Health(Enum):
    """State of one server."""

    UP = "up"
    DOWN = "down"
    PROBING = "probing"


class Outcome(Enum):
    """What can happen to a server's health."""

    SUCCESS = "success"
    FAILURE = "failure"
    PROBE_DUE = "probe_due"


class Breaker:
    """One server's health.

    Parameters
    ----------
    limit : int
        Failures in a row, with no success between them, that mean the server is down.

    Attributes
    ----------
    successes : int
        Grows with every success; two readings tell whether the server answered anything in between.
    """

    def __init__(self, limit: int = 5) -> None:
        self._limit = limit
        self._failures = 0
        self.health = Health.UP
        self.successes = 0

    @property
    def lets_through(self) -> bool:
        """Whether a call may be made."""
        return self.health is Health.UP

    def advance(self, outcome: Outcome) -> Health:
        """Take one outcome and return the health after it.

        Late outcomes of calls made before the server went down count: a success proves that it answers.
        """
        if outcome is Outcome.SUCCESS:
            self.successes += 1
            self._failures = 0
            self.health = Health.UP
        elif outcome is Outcome.FAILURE:
            self._failures += 1
            if self.health is Health.PROBING or self._failures >= self._limit:
                self.health = Health.DOWN
        elif self.health is Health.DOWN:
            self.health = Health.PROBING
        return self.health
