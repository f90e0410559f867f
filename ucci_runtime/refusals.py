"""Why one request over HTTP is not served, in whichever shape a service then writes it."""

from __future__ import annotations

from schemas.errors import UcciError, one_line

_MAX_FIELD_CHARS = 100


class RequestRefused(UcciError):
    """One request over HTTP is not served: answer with its status.

    Parameters
    ----------
    status : int
        HTTP status code.
    code : str
        A short machine-readable word.
    message : str
        One line for people, naming the remedy.
    field : str, optional
        Dotted path of the faulty field, or the name of the faulty header.
    retry_after_s : int, optional
        When trying again may help.
    """

    def __init__(
        self, status: int, code: str, message: str, field: str | None = None, retry_after_s: int | None = None
    ) -> None:
        self.status = status
        self.code = code
        self.field = None if field is None else one_line(field, _MAX_FIELD_CHARS)
        self.retry_after_s = retry_after_s
        super().__init__(one_line(message))
