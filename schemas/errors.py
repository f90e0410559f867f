"""The root of the error tree. Every error of the project is one of ours, and its class says what the caller does next.

::

    UcciError
    ├── ConfigError      the settings are wrong: print each fault, exit 2
    └── DecodeError      one record or body is wrong: dead letter or 4xx, go on
"""

from __future__ import annotations

from collections.abc import Sequence


class UcciError(Exception):
    """Root of all errors raised by this project."""


class ConfigError(UcciError):
    """The configuration is wrong; nothing was started.

    Parameters
    ----------
    faults : sequence of str
        One line for each fault, each naming the key, the value and the remedy.
    """

    exit_code = 2

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(self.faults))


class DecodeError(UcciError):
    """One record or body does not follow the contract.

    Parameters
    ----------
    reason : str
        A short machine-readable word for counters and headers, such as ``"not_json"`` or ``"invalid_field"``.
    message : str
        One line that names the field, the value and the remedy.
    field : str or None
        Dotted path of the faulty field, if one field is to blame.
    """

    def __init__(self, reason: str, message: str, field: str | None = None) -> None:
        self.reason = reason
        self.field = field
        super().__init__(message)
