"""What tables of ``ucci.toml`` share: a frozen section, the types of its values, and who may call over HTTP."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from schemas.entities import IGNORABLE, normalise
from schemas.event import MAX_NAME_CHARS

LOOPBACK_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})
#: Of an API key: shorter ones can be guessed within a quota.
MIN_KEY_CHARS = 16
#: Of the keys of versions and draws: anybody who reads the topics can try keys offline, without limit.
MIN_SIGNING_KEY_CHARS = 32
#: What hashing an unset variable gives.
_HASHES_OF_NOTHING = frozenset(sha256(text).hexdigest() for text in (b"", b"\n"))

Integer = Annotated[int, Field(strict=True)]
Number = Annotated[float, Field(strict=True)]
Share = Annotated[Number, Field(ge=0.0, le=1.0)]
Port = Annotated[Integer, Field(ge=0, le=65_535)]
Seconds = Annotated[Number, Field(gt=0.0, le=3_600.0)]
Host = Annotated[str, Field(min_length=1, max_length=255)]
#: A name or an address as a Host header gives it, without its port and without brackets; ``*`` stands for any.
HostName = Annotated[str, Field(pattern=r"^(\*|[A-Za-z0-9._-]{1,255}|[0-9A-Fa-f:.]{2,45})$")]

KeyName = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]


class Reread:
    """Marks a setting that a running service takes over on SIGHUP; all others need a restart.

    Marked is what is looked up for every query, request or refit, so that it changes at one moment and as a whole, and
    what a restart would change in the same way. What connections, threads, topics or stores were built with is not.
    """


REREAD = Reread()


def sendable(secret: str) -> str:
    r"""Return a secret as a header carries it: without the white space around it. Raises ValueError for what none does.

    Examples
    --------
    >>> sendable("sk-1\n")
    'sk-1'
    """
    secret = secret.strip()
    if not secret:
        raise ValueError(
            "is empty (is the variable that holds it set?): give the key, or leave it out where none is asked for"
        )
    if not (secret.isascii() and secret.isprintable()) or " " in secret:
        raise ValueError(
            "holds white space, a control character or a character beyond ASCII, which no key has: give the key alone, "
            "without quotes or a word before it"
        )
    return secret


def _stripped(value: SecretStr) -> SecretStr:
    return SecretStr(value.get_secret_value().strip())


def _sendable(value: SecretStr) -> SecretStr:
    return SecretStr(sendable(value.get_secret_value()))


def _in_one_line(value: SecretStr) -> SecretStr:
    if not value.get_secret_value().isprintable():
        raise ValueError("holds a control or an invisible character inside: give the secret alone, on one line")
    return value


#: A secret without the white space around it: what ``echo`` writes into a mounted Secret ends in a line break.
Secret = Annotated[SecretStr, AfterValidator(_stripped), AfterValidator(_in_one_line)]
#: The same of what is sent as a bearer token.
BearerToken = Annotated[SecretStr, AfterValidator(_sendable)]
#: Text whose surrounding white space means nothing, as that of an address.
StrippedText = BeforeValidator(lambda value: value.strip() if isinstance(value, str) else value)


class Section(BaseModel):
    """A table of the file: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)


def long_enough(value: SecretStr | tuple[SecretStr, ...] | None) -> Any:
    """Refuse keys that can be found by trying."""
    keys = value if isinstance(value, tuple) else () if value is None else (value,)
    if any(len(key.get_secret_value()) < MIN_SIGNING_KEY_CHARS for key in keys):
        raise ValueError(f"is empty or too short: give a random key of at least {MIN_SIGNING_KEY_CHARS} characters")
    return value


def each_once(what: str) -> AfterValidator:
    """Return what refuses a list that names something twice."""

    def check(names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        if twice:
            raise ValueError(f"must not name a {what} twice: {', '.join(twice)}")
        return names

    return AfterValidator(check)


def _visible(name: str) -> str:
    """Refuse a name that looks like another one: what surrounds it, or stands in it, cannot be seen."""
    if name != name.strip():
        raise ValueError(f"{name!a} has white space around it, which nobody sees: leave it out")
    if not name.isprintable() or IGNORABLE.search(name):
        raise ValueError(f"{name!a} holds a character that nobody sees: type the name anew instead of pasting it")
    return name


#: A name whose every character shows.
Visible = Annotated[KeyName, AfterValidator(_visible)]


def told_apart(what: str) -> AfterValidator:
    """Return what refuses names that differ by case, spelling of the same characters or white space alone."""

    def check(names: tuple[str, ...]) -> tuple[str, ...]:
        first: dict[str, str] = {}
        for name in names:
            other = first.setdefault(normalise(name), name)
            if other != name:
                raise ValueError(
                    f"{other} and {name} differ by case, white space or spelling alone: models and labelers would take "
                    f"one {what} for the other; leave one out or give it another name"
                )
        return names

    return AfterValidator(check)


class CallerKey(Section):
    """One caller's key; give its hash rather than the key itself."""

    #: The key itself, of at least 16 characters; either this or ``key_sha256``.
    key: Secret | None = None
    #: Lower-case hex SHA-256 of the key.
    key_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    #: Requests allowed; a full minute's may come at once.
    quota_per_minute: Annotated[Integer, Field(ge=1)] = 6_000

    @field_validator("key")
    @classmethod
    def _cannot_be_guessed(cls, value: SecretStr | None) -> SecretStr | None:
        key = None if value is None else value.get_secret_value()
        if key is not None and len(key) < MIN_KEY_CHARS:
            what = "is too short" if key else "is empty (is the variable that holds it set?)"
            raise ValueError(f"{what}: give a random key of at least {MIN_KEY_CHARS} characters")
        return value

    @field_validator("key_sha256")
    @classmethod
    def _hash_of_a_key(cls, value: str | None) -> str | None:
        if value in _HASHES_OF_NOTHING:
            raise ValueError("is the hash of an empty key (is the variable that holds it set?): hash the key itself")
        return value

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.key is None) == (self.key_sha256 is None):
            raise ValueError("give either key_sha256 or key")
        return self


class ApiKey(CallerKey):
    """One caller's key; give its hash rather than the key itself.

    Parameters
    ----------
    quota_per_minute : int
        Events allowed; a full minute's may come at once.
    """

    #: What the caller may do: ``read`` what is known, give ``feedback`` as the key's own labelers, ``relay`` feedback
    #: of any labeler (Label Studio, tools), or ``admin``.
    scopes: frozenset[Literal["read", "feedback", "relay", "admin"]] = frozenset({"read"})
    #: Whom feedback with this key may name as its labeler; by default the key's own name alone.
    labelers: Annotated[tuple[KeyName, ...] | None, each_once("labeler")] = None

    @field_validator("labelers")
    @classmethod
    def _names_somebody(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value == ():
            raise ValueError("names nobody; leave it out for the key's own name")
        return value

    @model_validator(mode="after")
    def _may_speak(self) -> Self:
        if self.labelers is not None and not self.gives_feedback:
            raise ValueError("labelers: this key may not give feedback; add the scope feedback or leave labelers out")
        return self

    @property
    def gives_feedback(self) -> bool:
        """Whether feedback is taken from this key."""
        return not self.scopes.isdisjoint({"feedback", "relay"})
