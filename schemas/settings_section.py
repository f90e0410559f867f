"""What all tables of ``ucci.toml`` are made of: a frozen section, and the types of its values."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from schemas.event import MAX_NAME_CHARS

LOOPBACK_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})
#: Of an API key: shorter ones can be guessed within a quota.
MIN_KEY_CHARS = 16

Integer = Annotated[int, Field(strict=True)]
Number = Annotated[float, Field(strict=True)]
Share = Annotated[Number, Field(ge=0.0, le=1.0)]
Port = Annotated[Integer, Field(ge=0, le=65_535)]
Seconds = Annotated[Number, Field(gt=0.0, le=3_600.0)]
Host = Annotated[str, Field(min_length=1, max_length=255)]
#: A name or an address as a Host header gives it, without its port and without brackets; ``*`` stands for any.
HostName = Annotated[str, Field(pattern=r"^(\*|[A-Za-z0-9._-]{1,255}|[0-9A-Fa-f:.]{2,45})$")]

KeyName = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]
Speaker = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]


class Reread:
    """Marks a setting that a running service takes over on SIGHUP; all others need a restart.

    Marked is what is looked up for every query, request or refit, so that it changes at one moment and as a whole, and
    what a restart would change in the same way. What connections, threads, topics or stores were built with is not.
    """


REREAD = Reread()


class Section(BaseModel):
    """A table of the file: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)
