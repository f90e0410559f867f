"""The root of the errors. Every error of the project is one of ours, and its class says what the caller does next."""

from __future__ import annotations

from collections.abc import Sequence

#: Of one error's line; a dead letter's header holds no more.
MAX_ERROR_CHARS = 1_000

_MAX_FIELD_CHARS = 400


def one_line(text: str, limit: int = MAX_ERROR_CHARS) -> str:
    r"""Return a text as one line of bounded length that a log and a terminal show as it is.

    Senders choose names and values that errors repeat: a line break would forge a log line, an escape sequence would
    act on the terminal, and half a surrogate pair could not be written at all.

    Examples
    --------
    >>> one_line("a\nb\x1b[31m")
    'a\\nb\\x1b[31m'
    >>> one_line("abcdef", 4)
    'abc…'
    """
    # Cut first: only what is shown is looked at.
    shown = text[: limit + 1]
    if not shown.isprintable():
        shown = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in shown)
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


class UcciError(Exception):
    """Root of all errors raised by this project."""

    #: Of a command, or of a service, that ends by it.
    exit_code = 1


class ConfigError(UcciError):
    """The configuration is wrong; nothing was started. Print each fault."""

    exit_code = 2

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(map(one_line, faults))
        super().__init__("\n".join(self.faults))


class DecodeError(UcciError):
    """One record or body does not follow the contract: answer with a dead letter or a 4xx, and go on.

    ``reason``: a short machine-readable word for counters and headers, such as ``"not_json"`` or ``"invalid_field"``.
    ``message``: names the field, the value and the remedy. ``field``: dotted path of the one to blame, if it is one.
    """

    def __init__(self, reason: str, message: str, field: str | None = None) -> None:
        self.reason = reason
        self.field = None if field is None else one_line(field, _MAX_FIELD_CHARS)
        super().__init__(one_line(message))
