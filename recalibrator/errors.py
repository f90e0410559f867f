"""What can go wrong in a recalibrator; each class says what the caller does next.

::

    RecalibratorError
    ├── StateInUse             another process works on this state_dir: stop, exit non-zero
    ├── StoreDamaged           stored state cannot be read: set it aside, rebuild it from the topics
    └── RequestRefused         one HTTP request is not served: answer with its status

Errors of the broker are in :mod:`ucci_runtime.broker.errors`.
"""

from __future__ import annotations

from schemas.errors import UcciError, one_line


class RecalibratorError(UcciError):
    """Root of the recalibrator's errors."""


class StateInUse(RecalibratorError):
    """Another process works on the same state directory."""

    exit_code = 1


class StoreDamaged(RecalibratorError):
    """Stored state cannot be read; it is set aside and rebuilt from the topics."""

    exit_code = 1


class RequestRefused(RecalibratorError):
    """One HTTP request is not served.

    Parameters
    ----------
    status : int
        HTTP status code.
    code : str
        A short machine-readable word.
    message : str
        One line for people, naming the remedy.
    field : str, optional
        Dotted path of the faulty field.
    retry_after_s : int, optional
        When trying again may help.
    """

    def __init__(
        self, status: int, code: str, message: str, field: str | None = None, retry_after_s: int | None = None
    ) -> None:
        self.status = status
        self.code = code
        self.field = field
        self.retry_after_s = retry_after_s
        super().__init__(one_line(message))
