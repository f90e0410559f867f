"""What can go wrong in a router; each class says what the caller does next.

::

    RouterError
    ├── ModelsFailed        both models failed on this very query: dead letter, go on
    └── OffsetsWentBack     the log was cut or made anew while it was read: stop, start again

What goes wrong with the broker is told by :mod:`ucci_runtime.broker.errors`.
"""

from __future__ import annotations

from schemas.errors import UcciError


class RouterError(UcciError):
    """Root of the router's errors."""


class ModelsFailed(RouterError):
    """Both models failed on this query while the servers answer others.

    Parameters
    ----------
    small, large : str
        What each model's last attempt ended with.
    """

    reason = "models_failed"

    def __init__(self, small: str, large: str) -> None:
        self.small = small
        self.large = large
        super().__init__(f"small: {small}; large: {large}")


class OffsetsWentBack(RouterError):
    """An offset below one already delivered: the log was cut or made anew while it was read.

    Starting again is safe: the committed offset is then compared with the log as it is now.
    """

    exit_code = 1

    def __init__(self, offset: int, position: int) -> None:
        super().__init__(f"offset {offset} came after {position - 1}: the topic was cut or made anew; start again")
