"""A broker that does not answer at the start: how long to wait before it is asked again, and when to say so."""

from __future__ import annotations

FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 10.0
SAID_EVERY_S = 60.0

_MOST_DOUBLINGS = 10


class Absence:
    """How a start goes on while no broker answers.

    Examples
    --------
    >>> absence = Absence()
    >>> [absence.failed(at_s) for at_s in (0.0, 1.0, 60.0)]
    [True, False, True]
    >>> absence.wait_s
    2.0
    """

    def __init__(self) -> None:
        self._failures = 0
        self._said_at_s: float | None = None

    @property
    def wait_s(self) -> float:
        """Seconds until the broker is to be asked again; they double with each failure, up to ten."""
        doublings = min(max(self._failures - 1, 0), _MOST_DOUBLINGS)
        return min(FIRST_WAIT_S * float(2**doublings), LONGEST_WAIT_S)

    def failed(self, now_s: float) -> bool:
        """Note that nothing answered; return whether it is to be logged now: at first, then once a minute."""
        self._failures += 1
        is_due = self._said_at_s is None or now_s - self._said_at_s >= SAID_EVERY_S
        if is_due:
            self._said_at_s = now_s
        return is_due
