"""``[recalibrator]``, ``[calibration]`` and ``[notify]``: the recalibrator, whose versions count, whom it notifies."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, get_args
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from schemas.settings_callers import ApiKey, long_enough, require_keys
from schemas.settings_section import (
    MIN_KEY_CHARS,
    REREAD,
    Host,
    HostName,
    Integer,
    KeyName,
    Number,
    Port,
    Section,
    Share,
)


class RecalibratorSettings(Section):
    """``[recalibrator]``: join, fit and HTTP API."""

    #: Address to listen at; one that others reach needs ``api_keys``.
    http_host: Host = "127.0.0.1"
    #: Port of the dashboard and the API; 0 takes a free one.
    http_port: Port = 8080
    #: Address at which a process without the stage api serves its probes.
    probe_host: Host = "127.0.0.1"
    #: Port of /healthz, /readyz and /metrics of such a process; it serves none where this is left out, and 0 takes a
    #: free one.
    probe_port: Port | None = None
    #: Directory of the join store, snapshots and history; can be rebuilt from the topics.
    state_dir: str = "./state"
    #: Names the group members and transactional ids; must differ between running instances and stay the same over
    #: restarts. By default the one in ``state_dir``, made of the machine's name and the directory's path at first: set
    #: it where several machines have both alike.
    instance_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,200}$")] | None = None
    #: Longest request body; a batch may be 10 times as long.
    max_body_bytes: Annotated[Integer, Field(ge=1_000, le=100_000_000)] = 1_000_000
    #: Callers by name; none leaves the API open to this machine alone.
    api_keys: Annotated[dict[KeyName, ApiKey], REREAD] = Field(default_factory=dict)
    #: How long a result waits for its label.
    join_retention_s: Annotated[Number, Field(gt=0.0)] = 14 * 24 * 3600.0
    #: Most bytes of results in the join's file that wait or are joined. Beyond it the oldest are dropped, those first
    #: for which nobody was asked for a label, then labelled ones, and last those whose label was requested and has not
    #: come.
    join_max_bytes: Annotated[Integer, Field(ge=1_000_000)] = 4_000_000_000
    #: Most queries of a workload that people are asked to label at a time; the oldest are no longer asked for beyond
    #: it.
    label_requests_max: Annotated[Integer, Field(ge=1, le=1_000_000)] = 10_000
    #: Names under which requests may ask for this server, ``*`` for any. They add to those of loopback where it listens
    #: there, which is what keeps other sites' names from being pointed at it; where it listens elsewhere, any name is
    #: allowed unless some are given.
    allowed_hosts: tuple[HostName, ...] = ()

    @model_validator(mode="after")
    def _closed_to_others(self) -> Self:
        require_keys(self.http_host, self.allowed_hosts, self.api_keys)
        return self


class CalibrationSettings(Section):
    """``[calibration]``: whose calibration versions count."""

    #: With it the fit signs its versions, and routers refuse all that are unsigned or signed by another key. The same
    #: for the fit and all routers; at least 32 random characters.
    signing_key: SecretStr | None = None
    #: Keys whose signatures routers take as well, while the key is being changed.
    former_keys: tuple[SecretStr, ...] = ()
    #: Most by which a version's expected escalation rate may differ from that of the version in force; routers refuse
    #: one that differs more, unless a person asked for it (``activate``, ``pin``, ``promote``, ``bootstrap``). A
    #: canary's share of that difference counts. Without it any difference is taken.
    max_escalation_jump: Annotated[Share | None, REREAD] = None

    @field_validator("signing_key", "former_keys")
    @classmethod
    def _cannot_be_found(cls, value: SecretStr | tuple[SecretStr, ...] | None) -> Any:
        return long_enough(value)

    @model_validator(mode="after")
    def _has_a_present_key(self) -> Self:
        if self.former_keys and self.signing_key is None:
            raise ValueError("former_keys: are given without a signing_key; set it, or leave former_keys out")
        return self

    @property
    def accepted_keys(self) -> tuple[bytes, ...]:
        """The keys one of which must have signed a version, the fit with the first; empty where none need be signed."""
        present = () if self.signing_key is None else (self.signing_key, *self.former_keys)
        return tuple(key.get_secret_value().encode() for key in present)


NoticeKind = Literal["state", "drift", "labels", "outage"]


class Webhook(Section):
    """One address that is notified of changes."""

    #: Where notifications are posted to; never shown, since it may hold a token.
    url: SecretStr
    #: Signs each notification (Standard Webhooks: ``webhook-id``, ``webhook-timestamp``, ``webhook-signature``); at
    #: least 16 characters, or base64 after ``whsec_``.
    secret: SecretStr | None = None
    #: Changes to be notified of: of the workload's ``state``, of ``drift``, of suspected ``labels`` or labelers set
    #: aside, of an ``outage`` of a model server.
    kinds: frozenset[NoticeKind] = frozenset(get_args(NoticeKind))
    #: Whose changes; by default those of all.
    workloads: tuple[KeyName, ...] = ()

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, value: SecretStr) -> SecretStr:
        try:
            parts = urlsplit(value.get_secret_value())
            is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_address = False
        if not is_address:
            raise ValueError("is not an address such as https://hooks.example.com/services/…")
        return value

    @field_validator("secret")
    @classmethod
    def _signs(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value().strip()) < MIN_KEY_CHARS:
            raise ValueError(f"is empty or too short: give a random secret of at least {MIN_KEY_CHARS} characters")
        return value


class NotifySettings(Section):
    """``[notify]``: whom the fit notifies of changes."""

    #: Addresses by name.
    webhooks: dict[KeyName, Webhook] = Field(default_factory=dict)
    #: Where people reach the page, for links in notifications.
    page_url: Annotated[str, Field(pattern=r"^https?://[^\s/]+")] | None = None
