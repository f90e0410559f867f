"""How many retries a server's callers may afford, as a share of what it answers. Pure."""

from __future__ import annotations

#: Retries add at most this share to the load of a server that answers.
RETRIES_A_SUCCESS = 0.2

#: Retries that a server may get while it answers nothing: enough for passing errors on an almost idle stream.
MOST_SAVED = 10.0


class RetryBudget:
    """Tokens, one a retry; answers earn them.

    Examples
    --------
    >>> budget = RetryBudget()
    >>> sum(budget.take() for _ in range(100))
    10
    >>> for _ in range(5):
    ...     budget.earn()
    >>> budget.take(), budget.take()
    (True, False)
    """

    def __init__(self) -> None:
        self._tokens = MOST_SAVED

    def earn(self) -> None:
        """Take note of a call that was answered."""
        self._tokens = min(MOST_SAVED, self._tokens + RETRIES_A_SUCCESS)

    def take(self) -> bool:
        """Take a token; False when there is none."""
        if self._tokens < 1.0 - 1e-9:
            return False
        self._tokens -= 1.0
        return True
