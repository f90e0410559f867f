"""Every key of ``ucci.toml`` as frozen types with defaults and bounds.

The file and the environment are read by :mod:`schemas.settings_text`. Numbers written as text, and booleans in place of
numbers, are refused rather than guessed at.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from itertools import chain
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args
from urllib.parse import unquote, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from schemas.basis import Basis, basis_of
from schemas.calibration import Signal, Target, TargetShare
from schemas.canonical import digest
from schemas.costs import ModelCosts
from schemas.detectors import DEFAULT_DETECTORS, DetectorName, RiverArguments, RiverName
from schemas.event import DEFAULT_SIGNAL, MAX_NAME_CHARS, SignalKind
from schemas.handoff import Granularity, Handoff
from schemas.schema_registry import checked_registry, schema_id
from schemas.target_rules import contradictions, impossibilities

TEXT_PLACEHOLDER = "{text}"
LOOPBACK_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})
BOOTSTRAP_KEY = "bootstrap.servers"
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_QUERY_DEADLINE_S = 120.0
"""Leaves three attempts to a large model that may take 30 s, after a small one that failed."""

Integer = Annotated[int, Field(strict=True)]
Number = Annotated[float, Field(strict=True)]
Share = Annotated[Number, Field(ge=0.0, le=1.0)]
Port = Annotated[Integer, Field(ge=0, le=65_535)]
Seconds = Annotated[Number, Field(gt=0.0, le=3_600.0)]
Host = Annotated[str, Field(min_length=1, max_length=255)]
HostName = Annotated[str, Field(pattern=r"^(\*|[A-Za-z0-9._-]{1,255}|[0-9A-Fa-f:.]{2,45})$")]
"""A name or an address as a Host header gives it, without its port and without brackets; ``*`` stands for any."""


class Reread:
    """Marks a setting that a running service takes over on SIGHUP; all others need a restart.

    Marked is what is read anew for every query, request or refit, so that it changes at one moment and as a whole, and
    what a restart would change in the same way. What connections, threads, topics or stores were built with is not.
    """


REREAD = Reread()


class Section(BaseModel):
    """A table of the file: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)


class TopicSettings(Section):
    """``[topics]``: how the topics are called and created.

    Parameters
    ----------
    prefix : str
        What every topic's name begins with, before a dot.
    partitions : int
        Partitions that ``topics create`` gives to topics that are not compacted.
    replication_factor : int
        Copies of each partition; -1 leaves it to the broker.
    """

    prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,200}$")] = "ucci"
    partitions: Annotated[Integer, Field(ge=1, le=10_000)] = 6
    replication_factor: Annotated[Integer, Field(ge=-1, le=100)] = -1


MIN_SIGNING_KEY_CHARS = 32
"""Of the keys of versions and draws: anybody who reads the topics can try keys offline, without limit."""


def _long_enough(value: SecretStr | tuple[SecretStr, ...] | None) -> Any:
    keys = value if isinstance(value, tuple) else () if value is None else (value,)
    if any(len(key.get_secret_value().strip()) < MIN_SIGNING_KEY_CHARS for key in keys):
        raise ValueError(f"is empty or too short: give a random key of at least {MIN_SIGNING_KEY_CHARS} characters")
    return value


class RouterSettings(Section):
    """``[router]``: one router instance.

    Parameters
    ----------
    instance_id : str
        Names the transactional.id: must differ between running instances and stay the same over restarts.
    max_in_flight : int
        Queries that are worked on at a time.
    commit_interval_ms : int
        Time between transactions; a result is seen after at most about this long.
    http_host : str
        Address to listen at.
    http_port : int
        Port of /healthz, /readyz, /metrics and /v1/status; 0 takes a free one.
    large_outage : str
        When the large model's server is down: ``serve_small`` serves valid small answers as degraded, ``wait``
        stops the stream until it is back.
    drain_timeout_s : float
        Time that SIGTERM leaves to queries in flight before the last commit; no more than 0.5 s of it where other
        routers take them over.
    query_deadline_s : float
        Longest time that one query may spend at model servers, retries included, before it counts as failed there. Each
        model has one attempt of its whole ``timeout_s`` in any case. Time in a queue and time in which a server is
        down do not count.
    state_dir : str, optional
        Directory in which the router keeps the last good calibration version of each workload, to decide by until the
        calibration topic brings one. Without it a router keeps nothing on disk.
    allowed_hosts : list of str
        Names under which requests may ask for this router, as ``recalibrator.allowed_hosts`` does for the API.
    draw_key : str, optional
        Which queries are labelled, explored and tried is drawn with this secret and the query's id. The same for all
        routers and gateways; at least 32 random characters. Without it whoever names queries can choose their draws.
    """

    instance_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,200}$")] = "router-0"
    max_in_flight: Annotated[Integer, Field(ge=1, le=100_000), REREAD] = 256
    commit_interval_ms: Annotated[Integer, Field(ge=10, le=5_000)] = 200
    http_host: Host = "127.0.0.1"
    http_port: Port = 8081
    large_outage: Annotated[Literal["serve_small", "wait"], REREAD] = "serve_small"
    drain_timeout_s: Annotated[Number, Field(gt=0.0, le=18.0), REREAD] = 12.0
    query_deadline_s: Annotated[Seconds, REREAD] = DEFAULT_QUERY_DEADLINE_S
    state_dir: Annotated[str, Field(min_length=1)] | None = None
    allowed_hosts: tuple[HostName, ...] = ()
    draw_key: SecretStr | None = None

    @field_validator("draw_key")
    @classmethod
    def _cannot_be_found(cls, value: SecretStr | None) -> Any:
        return _long_enough(value)

    @property
    def draw_with(self) -> bytes | None:
        """The key of the draws."""
        return None if self.draw_key is None else self.draw_key.get_secret_value().encode()


MIN_KEY_CHARS = 16
"""Of an API key: shorter ones can be guessed within a quota."""

_HASHES_OF_NOTHING = frozenset(sha256(text).hexdigest() for text in (b"", b"\n"))
"""What hashing an unset variable gives."""

KeyName = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]
Speaker = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]


class CallerKey(Section):
    """One caller's key; give its hash rather than the key itself.

    Parameters
    ----------
    key : str, optional
        The key itself, of at least 16 characters; either this or ``key_sha256``.
    key_sha256 : str, optional
        Lower-case hex SHA-256 of the key.
    quota_per_minute : int
        Requests allowed; a full minute's may come at once.
    """

    key: SecretStr | None = None
    key_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    quota_per_minute: Annotated[Integer, Field(ge=1)] = 6_000

    @field_validator("key")
    @classmethod
    def _cannot_be_guessed(cls, value: SecretStr | None) -> SecretStr | None:
        # White space around a header's value is lost on the way.
        key = None if value is None else value.get_secret_value().strip()
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
    scopes : list of str
        What the caller may do: ``read`` what is known, give ``feedback`` as the key's own labelers, ``relay`` feedback
        of any labeler (Label Studio, tools), or ``admin``.
    labelers : list of str, optional
        Whom feedback with this key may name as its labeler; by default the key's own name alone.
    quota_per_minute : int
        Events allowed; a full minute's may come at once.
    """

    scopes: frozenset[Literal["read", "feedback", "relay", "admin"]] = frozenset({"read"})
    labelers: tuple[Speaker, ...] | None = None

    @field_validator("labelers")
    @classmethod
    def _names_somebody(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value == ():
            raise ValueError("names nobody; leave it out for the key's own name")
        twice = sorted({name for name in value or () if (value or ()).count(name) > 1})
        if twice:
            raise ValueError(f"must not name a labeler twice: {', '.join(twice)}")
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


class GatewaySettings(Section):
    """``[gateway]``: one gateway, which answers queries over HTTP in OpenAI's protocol.

    Parameters
    ----------
    instance_id : str
        ``routed_by`` of its results; must differ between running gateways, and from every router's.
    http_host : str
        Address to listen at; one that others reach needs ``api_keys``.
    http_port : int
        Port of /v1/completions, /v1/chat/completions, /v1/models, /v1/status, /healthz, /readyz and /metrics; 0 takes
        a free one.
    api_keys : table
        Callers by name; none leaves the gateway open to this machine alone.
    max_in_flight : int
        Queries that are worked on at a time, those that wait for a model included; more are refused (429).
    answer_timeout_s : float
        Longest time that a caller waits; then the query is given up (504), without a result.
    max_body_bytes : int
        Longest request body.
    max_connections : int
        Connections kept open, at most a quarter as many as the process may open files; beyond it the one that has
        waited longest for a request makes room.
    drain_timeout_s : float
        Time that SIGTERM leaves to queries in flight.
    state_dir : str, optional
        Directory in which the gateway keeps the last good calibration versions, as ``router.state_dir`` does.
    allowed_hosts : list of str
        Names under which requests may ask for this gateway, as ``recalibrator.allowed_hosts`` does for the API.
    """

    instance_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,200}$")] = "gateway-0"
    http_host: Host = "127.0.0.1"
    http_port: Port = 8082
    api_keys: dict[KeyName, CallerKey] = Field(default_factory=dict)
    max_in_flight: Annotated[Integer, Field(ge=1, le=100_000)] = 1_000
    answer_timeout_s: Seconds = 60.0
    max_body_bytes: Annotated[Integer, Field(ge=1_000, le=100_000_000)] = 1_000_000
    max_connections: Annotated[Integer, Field(ge=1, le=100_000)] = 2_048
    drain_timeout_s: Annotated[Number, Field(gt=0.0, le=18.0)] = 12.0
    state_dir: Annotated[str, Field(min_length=1)] | None = None
    allowed_hosts: tuple[HostName, ...] = ()

    @model_validator(mode="after")
    def _closed_to_others(self) -> Self:
        _require_keys(self.http_host, self.allowed_hosts, self.api_keys)
        return self


def _require_keys(http_host: str, allowed_hosts: tuple[str, ...], api_keys: Mapping[str, CallerKey]) -> None:
    """Refuse to serve others without keys, be they on the network or on a page in the operator's browser."""
    if api_keys:
        return
    if "*" in allowed_hosts:
        raise ValueError(
            "allowed_hosts: * lets any site that points its name at this machine use the API, as api_keys is "
            "empty: name the hosts, or add a key"
        )
    if http_host not in LOOPBACK_HOSTS:
        raise ValueError(
            f"http_host: {http_host} is reachable by others and api_keys is empty: add a key or use 127.0.0.1"
        )


class RecalibratorSettings(Section):
    """``[recalibrator]``: join, fit and HTTP API.

    Parameters
    ----------
    http_host : str
        Address to listen at; one that others reach needs ``api_keys``.
    http_port : int
        Port of the dashboard and the API; 0 takes a free one.
    probe_host : str
        Address at which a process without the stage api serves its probes.
    probe_port : int, optional
        Port of /healthz, /readyz and /metrics of such a process; it serves none where this is left out, and 0 takes a
        free one.
    state_dir : str
        Directory of the join store, snapshots and history; can be rebuilt from the topics.
    instance_id : str, optional
        Names the group members and transactional ids; must differ between running instances and stay the same over
        restarts. By default the one in ``state_dir``, made of the machine's name and the directory's path at first: set
        it where several machines have both alike.
    max_body_bytes : int
        Longest request body; a batch may be 10 times as long.
    api_keys : table
        Callers by name; none leaves the API open to this machine alone.
    commit_interval_ms : int
        Time between transactions of a stage.
    join_retention_s : float
        How long a result waits for its label.
    join_max_rows : int
        Most results that wait or are joined at a time. Beyond it the oldest are dropped, those first for which nobody
        was asked for a label, then labelled ones, and last those whose label was requested and has not come.
    join_max_bytes : int
        Most bytes of them in the join's file, dropped in the same order.
    label_request_retention_s : float
        How long people are asked for a query's label; at most as long as the topic of the requests keeps them.
    label_requests_max : int
        Most queries of a workload that people are asked to label at a time; the oldest are no longer asked for beyond
        it.
    allowed_hosts : list of str
        Names under which requests may ask for this server, ``*`` for any. They add to those of loopback where it
        listens there, which is what keeps other sites' names from being pointed at it; where it listens elsewhere, any
        name is allowed unless some are given.
    """

    http_host: Host = "127.0.0.1"
    http_port: Port = 8080
    probe_host: Host = "127.0.0.1"
    probe_port: Port | None = None
    state_dir: str = "./state"
    instance_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,200}$")] | None = None
    max_body_bytes: Annotated[Integer, Field(ge=1_000, le=100_000_000)] = 1_000_000
    api_keys: Annotated[dict[KeyName, ApiKey], REREAD] = Field(default_factory=dict)
    commit_interval_ms: Annotated[Integer, Field(ge=10, le=10_000)] = 250
    join_retention_s: Annotated[Number, Field(gt=0.0)] = 14 * 24 * 3600.0
    join_max_rows: Annotated[Integer, Field(ge=1_000)] = 5_000_000
    join_max_bytes: Annotated[Integer, Field(ge=1_000_000)] = 4_000_000_000
    label_request_retention_s: Annotated[Number, Field(gt=0.0, le=30 * 24 * 3600.0)] = 7 * 24 * 3600.0
    label_requests_max: Annotated[Integer, Field(ge=1, le=1_000_000)] = 10_000
    allowed_hosts: tuple[HostName, ...] = ()

    @model_validator(mode="after")
    def _closed_to_others(self) -> Self:
        _require_keys(self.http_host, self.allowed_hosts, self.api_keys)
        return self


class BasicCredentials(NamedTuple):
    """What a server asks for in HTTP basic authentication."""

    user: str
    password: str


class CalibrationSettings(Section):
    """``[calibration]``: whose calibration versions count.

    Parameters
    ----------
    signing_key : str, optional
        With it the fit signs its versions, and routers refuse all that are unsigned or signed by another key. The same
        for the fit and all routers; at least 32 random characters.
    former_keys : list of str
        Keys whose signatures routers take as well, while the key is being changed.
    max_escalation_jump : float, optional
        Most by which a version's expected escalation rate may differ from that of the version in force; routers refuse
        one that differs more, unless a person asked for it (``activate``, ``pin``, ``promote``, ``bootstrap``). Without
        it any difference is taken.
    """

    signing_key: SecretStr | None = None
    former_keys: tuple[SecretStr, ...] = ()
    max_escalation_jump: Annotated[Share | None, REREAD] = None

    @field_validator("signing_key", "former_keys")
    @classmethod
    def _cannot_be_found(cls, value: SecretStr | tuple[SecretStr, ...] | None) -> Any:
        return _long_enough(value)

    @model_validator(mode="after")
    def _has_a_present_key(self) -> Self:
        if self.former_keys and self.signing_key is None:
            raise ValueError("former_keys: are given without a signing_key; set it, or leave former_keys out")
        return self

    @property
    def sign_with(self) -> bytes | None:
        """The key that new versions are signed with."""
        return None if self.signing_key is None else self.signing_key.get_secret_value().encode()

    @property
    def accepted_keys(self) -> tuple[bytes, ...]:
        """The keys one of which must have signed a version; empty where none need be signed."""
        present = () if self.signing_key is None else (self.signing_key, *self.former_keys)
        return tuple(key.get_secret_value().encode() for key in present)


NoticeKind = Literal["state", "drift", "labels", "outage"]


class Webhook(Section):
    """One address that is notified of changes.

    Parameters
    ----------
    url : str
        Where notifications are posted to; never shown, since it may hold a token.
    secret : str, optional
        Signs each notification (Standard Webhooks: ``webhook-id``, ``webhook-timestamp``, ``webhook-signature``); at
        least 16 characters, or base64 after ``whsec_``.
    kinds : list of str
        Changes to be notified of: of the workload's ``state``, of ``drift``, of suspected ``labels`` or labelers set
        aside, of an ``outage`` of a model server.
    workloads : list of str
        Whose changes; by default those of all.
    timeout_s : float
        For one attempt.
    """

    url: SecretStr
    secret: SecretStr | None = None
    kinds: frozenset[NoticeKind] = frozenset(get_args(NoticeKind))
    workloads: tuple[KeyName, ...] = ()
    timeout_s: Seconds = 10.0

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
    """``[notify]``: whom the fit notifies of changes.

    Parameters
    ----------
    webhooks : table
        Addresses by name.
    page_url : str, optional
        Where people reach the page, for links in notifications.
    queue_max : int
        Notifications that wait for one webhook; beyond it the oldest is dropped.
    first_retry_s : float
        Time before the second attempt; it doubles up to 300 s.
    retry_for_s : float
        How long one notification is tried.
    """

    webhooks: dict[KeyName, Webhook] = Field(default_factory=dict)
    page_url: Annotated[str, Field(pattern=r"^https?://[^\s/]+")] | None = None
    queue_max: Annotated[Integer, Field(ge=1, le=10_000)] = 100
    first_retry_s: Seconds = 1.0
    retry_for_s: Annotated[Number, Field(ge=0.0, le=7 * 24 * 3600.0)] = 3_600.0


class ModelEndpoint(Section):
    """One model server; a router needs both, ``small`` and ``large``.

    Parameters
    ----------
    base_url : str
        OpenAI-compatible root, ``/v1`` included. A user and a password in it (``http://user:password@host/v1``, each
        percent-encoded) are sent as basic authentication and shown nowhere.
    model : str
        Name of the model as the server knows it.
    timeout_s : float
        Longest time for one attempt.
    max_concurrency : int
        Requests open at this server at a time.
    max_attempts : int
        Attempts for one query, the first included.
    api_key : str, optional
        Sent as a bearer token.
    """

    base_url: Annotated[str, Field(pattern=r"^https?://[^\s]+$")]
    model: Annotated[str, Field(min_length=1)]
    timeout_s: Seconds = 10.0
    max_concurrency: Annotated[Integer, Field(ge=1, le=10_000)] = 256
    max_attempts: Annotated[Integer, Field(ge=1, le=20)] = 3
    api_key: SecretStr | None = None

    @field_validator("base_url")
    @classmethod
    def _has_a_host(cls, value: str) -> str:
        try:
            parts = urlsplit(value)
            host, _ = parts.hostname, parts.port
        except ValueError:
            # Its message would name what stands for the port, which may be the end of a password.
            host = None
        if not host:
            raise ValueError(
                "must be like http://host:8000/v1; in a user or password write / as %2F, : as %3A, @ as %40"
            )
        return value

    @model_validator(mode="after")
    def _one_authorization(self) -> Self:
        if self.api_key is not None and self.credentials is not None:
            raise ValueError("api_key and the user in base_url exclude each other: leave one of them out")
        return self

    @property
    def credentials(self) -> BasicCredentials | None:
        """The user and password in ``base_url``, or None."""
        parts = urlsplit(self.base_url)
        if parts.username is None and parts.password is None:
            return None
        return BasicCredentials(unquote(parts.username or ""), unquote(parts.password or ""))

    @property
    def public_url(self) -> str:
        """``base_url`` as it is asked and may be shown: without user and password."""
        parts = urlsplit(self.base_url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")


class Sampling(Section):
    """What is explored and what people are asked to label.

    Parameters
    ----------
    exploration_probability : float
        Share of kept queries that run the large model too, after a change; while all is quiet a version asks for less.
        Must not exceed either label probability.
    label_probability_kept : float
        Share of queries below the threshold for which a label is requested.
    label_probability_escalated : float
        Share of queries above the threshold for which a label is requested.
    """

    exploration_probability: Share = 0.03
    label_probability_kept: Share = 0.05
    label_probability_escalated: Share = 0.10

    @model_validator(mode="after")
    def _labels_both_sides(self) -> Self:
        """Refuse labels of one side alone: nothing would tell how good the answers of the other side are."""
        kept, escalated = self.label_probability_kept, self.label_probability_escalated
        if (kept == 0.0) != (escalated == 0.0):
            silent, other = ("kept", "escalated") if kept == 0.0 else ("escalated", "kept")
            raise ValueError(
                f"label_probability_{silent} is 0 while label_probability_{other} is not: no label would ever tell how "
                f"good {silent} answers are; set it above 0, or both to 0 for no labels at all"
            )
        return self

    @model_validator(mode="after")
    def _exploration_is_labelled(self) -> Self:
        lowest = min(self.label_probability_kept, self.label_probability_escalated)
        if self.exploration_probability > lowest:
            raise ValueError(
                f"exploration_probability {self.exploration_probability} exceeds a label probability ({lowest}): "
                "explored queries must be labelled; lower it or raise the label probability"
            )
        return self


class _TargetTable(Target):
    """``Target`` as a table of the file: events may carry keys of a later contract, the file may not."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)
    # Of a file every fault is named; of an event, whose sender may be hostile, the first.
    fields: dict[str, TargetShare] = Field(default_factory=dict)


class _CostTable(ModelCosts):
    """``ModelCosts`` as a table of the file."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


def _checked_target(value: object) -> object:
    if isinstance(value, dict):
        _TargetTable.model_validate(value)
    return value


def _checked_cost(value: object) -> object:
    if isinstance(value, dict):
        _CostTable.model_validate(value)
    return value


class HandoffSettings(Section):
    """``[workloads.NAME.handoff]``: the large model goes on from what the small one was certain of.

    Parameters
    ----------
    margin : float
        What is handed over ends before the first token of the small model's answer whose p1 - p2 lies below it.
    granularity : str
        ``field`` hands over whole fields alone; ``token`` everything up to that token, which saves more and costs more
        quality.
    guard_share : float
        Share of escalated queries for which the large model also answers alone, unserved, so that it is known what
        handing over changes.
    micro_f1_loss : float
        micro-F1 on escalated queries that handing over may cost. Where labels show that it costs more, with 95 %
        confidence, it is switched off; 1 never switches it off.
    """

    margin: Annotated[Number, Field(gt=0.0, le=1.0)] = 0.9
    granularity: Granularity = "field"
    guard_share: Share = 0.01
    micro_f1_loss: Share = 0.002

    @property
    def handoff(self) -> Handoff:
        """What is handed over."""
        return Handoff(margin=self.margin, granularity=self.granularity)


class WorkloadSettings(Section):
    """``[workloads.NAME]``: what one kind of query asks for, of which models, and what is promised.

    Parameters
    ----------
    prompt : str
        Text sent to both models; ``{text}`` is replaced literally by the query's text.
    fields : list of str
        Entities to extract.
    api : str
        Which endpoint of the server is called; ``chat`` sends one user message.
    decoding : str
        ``json_schema`` has the server force the shape of the answer.
    uncertainty : str
        How the uncertainty of an answer is measured from its tokens: ``token_margin`` is 1 - mean(p1 - p2), ``entropy``
        the mean normalised entropy of the five most probable alternatives and the rest, ``max_probability``
        1 - mean(p1). Versions, labels and traffic of another signal do not count: after a change the workload starts
        cold.
    max_tokens : int
        Longest completion.
    small, large : table
        The two models' servers.
    target : table
        The promise that the threshold must hold: a quality at the least cost, or the best quality that a budget buys.
    sampling : table
        Exploration and labels.
    cost : table, optional
        What one call or one token of each model costs; measured from latency when left out.
    trusted_labelers : list of str
        Labelers whose answers to an audit decide. Where none is named, only somebody who gave none of the suspected
        labels decides.
    detectors : list of str
        Which of our drift detectors watch the workload.
    river : table
        Detectors of the river library beside them, ``ADWIN``, ``PageHinkley`` or ``KSWIN``, each with the arguments
        that river documents: ``{ ADWIN = { delta = 0.002 } }``.
    calibration_map : str
        How g is fitted. ``isotonic`` follows whatever shape the errors have; ``platt`` is a logistic curve of two
        parameters, for workloads with so few labels that a shape cannot be learnt.
    handoff : table, optional
        Has the large model go on from the part of an answer that the small one was certain of, instead of beginning
        anew. Small calls are streamed then. Versions and labels made under another handoff do not count: after a change
        the workload starts cold. Needs ``decoding = "free"``.
    field_margins : bool
        Has small calls streamed, as ``handoff`` does, so that results say how sure the small model was of each field.
        Streaming costs the router about three times the CPU time.
    """

    name: Annotated[str, Field(min_length=1, max_length=255)]
    prompt: Annotated[str, Field(max_length=100_000)] = TEXT_PLACEHOLDER
    fields: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=255)], ...], Field(min_length=1)]
    api: Literal["completions", "chat"] = "completions"
    decoding: Literal["free", "json_schema"] = "free"
    uncertainty: SignalKind = DEFAULT_SIGNAL
    max_tokens: Annotated[Integer, Field(ge=1, le=100_000)] = 256
    small: ModelEndpoint | None = None
    large: ModelEndpoint | None = None
    target: Annotated[Target, BeforeValidator(_checked_target), REREAD]
    sampling: Annotated[Sampling, REREAD] = Sampling()
    cost: Annotated[ModelCosts | None, BeforeValidator(_checked_cost), REREAD] = None
    trusted_labelers: Annotated[tuple[Speaker, ...], REREAD] = ()
    detectors: tuple[DetectorName, ...] = DEFAULT_DETECTORS
    river: dict[RiverName, RiverArguments] = Field(default_factory=dict)
    calibration_map: Literal["isotonic", "platt"] = "isotonic"
    handoff: HandoffSettings | None = None
    field_margins: bool = False

    @field_validator("prompt")
    @classmethod
    def _holds_the_text(cls, value: str) -> str:
        if TEXT_PLACEHOLDER not in value:
            raise ValueError(f"must contain {TEXT_PLACEHOLDER}, which is replaced by the query's text")
        return value

    @field_validator("fields")
    @classmethod
    def _distinct(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        twice = sorted({field for field in value if value.count(field) > 1})
        if twice:
            raise ValueError(f"must not name a field twice: {', '.join(twice)}")
        return value

    @field_validator("detectors")
    @classmethod
    def _each_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        twice = sorted({name for name in value if value.count(name) > 1})
        if twice:
            raise ValueError(f"must not name a detector twice: {', '.join(twice)}")
        return value

    @model_validator(mode="after")
    def _two_models(self) -> Self:
        small, large = self.small, self.large
        if small is not None and large is not None and (small.base_url, small.model) == (large.base_url, large.model):
            raise ValueError(f"small and large are both {small.model} on the same server: name two different models")
        return self

    @model_validator(mode="after")
    def _may_hand_over(self) -> Self:
        if self.handoff is not None and self.decoding == "json_schema":
            raise ValueError(
                'handoff needs decoding = "free": with json_schema the server would force a whole new object behind '
                "the part that is handed over; leave handoff out, or decode freely"
            )
        return self

    @model_validator(mode="after")
    def _promises_what_it_can(self) -> Self:
        explored = self.sampling.exploration_probability
        faults = chain(contradictions(self.target), impossibilities(self.target, self.fields, self.cost, explored))
        if (fault := next(faults, None)) is not None:
            raise ValueError(fault)
        return self

    @property
    def fingerprint(self) -> str:
        """Hash of what a calibration rests on: prompt, fields, decoding, signal, both models' names and the target.

        Where servers listen and how long they are waited for is not part of it.
        """
        models = {"small": self.small, "large": self.large}
        named = {role: None if endpoint is None else endpoint.model for role, endpoint in models.items()}
        kept = {"prompt", "fields", "api", "decoding", "uncertainty", "max_tokens", "target"}
        return digest(named | self.model_dump(mode="json", include=kept))

    @property
    def signal(self) -> Signal:
        """What u is measured on under these settings."""
        small_model = self.small.model if self.small else "small"
        return Signal(kind=self.uncertainty, small_model=small_model, decoding=self.decoding)

    @property
    def basis(self) -> Basis | None:
        """What the answers under these settings rest on; None where no models are named, as a recalibrator's may do."""
        if self.small is None or self.large is None:
            return None
        form = self.api, self.decoding, self.uncertainty, self.max_tokens
        return basis_of(self.prompt, self.fields, form, (self.small.model, self.large.model))

    @property
    def basis_mark(self) -> str | None:
        """What results, labels and traffic are marked with; None where no models are named."""
        basis = self.basis
        return None if basis is None else basis.mark

    @property
    def offered_handoff(self) -> Handoff | None:
        """What is handed over under these settings, unless a version has switched it off; None: nothing."""
        return None if self.handoff is None else self.handoff.handoff


def _only_scalar(value: JsonValue) -> JsonValue:
    if isinstance(value, dict | list) or value is None:
        raise ValueError("must be text, a number, true or false; librdkafka takes lists as comma-separated text")
    return value


def dotted_properties(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Undo what TOML does to an unquoted ``bootstrap.servers``: join nested tables to dotted names.

    Examples
    --------
    >>> dotted_properties({"bootstrap": {"servers": "a:9092"}, "acks": "all"})
    {'bootstrap.servers': 'a:9092', 'acks': 'all'}
    """
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat |= dotted_properties(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


class Settings(Section):
    """The whole of ``ucci.toml``.

    Parameters
    ----------
    kafka : table
        Any librdkafka property by its own name, handed through verbatim.
    schema_registry : table
        A registry that speaks Confluent's protocol, by the names of its clients' properties.
    default_workload : str, optional
        Workload of queries that name none, where several are configured; without it they become dead letters. In the
        file it stands above the first table.
    """

    kafka: dict[str, Annotated[JsonValue, AfterValidator(_only_scalar)]] = Field(default_factory=dict)
    topics: TopicSettings = TopicSettings()
    router: RouterSettings = RouterSettings()
    gateway: GatewaySettings = GatewaySettings()
    recalibrator: RecalibratorSettings = RecalibratorSettings()
    calibration: CalibrationSettings = CalibrationSettings()
    notify: NotifySettings = NotifySettings()
    schema_registry: dict[str, Annotated[JsonValue, AfterValidator(_only_scalar)]] = Field(default_factory=dict)
    workloads: dict[str, WorkloadSettings] = Field(default_factory=dict)
    default_workload: Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _complete_tables(cls, data: object) -> object:
        """Put each workload's name, the key of its table, into the table; give Kafka's table flat keys and a broker."""
        if not isinstance(data, dict):
            return data
        tables = dict(data)
        kafka, workloads = tables.get("kafka", {}), tables.get("workloads")
        if isinstance(registry := tables.get("schema_registry"), dict):
            tables["schema_registry"] = dotted_properties(registry)
        if isinstance(kafka, dict):
            tables["kafka"] = {BOOTSTRAP_KEY: DEFAULT_BOOTSTRAP, **dotted_properties(kafka)}
        if isinstance(workloads, dict):
            tables["workloads"] = {
                name: {"name": name, **table} if isinstance(table, dict) else table for name, table in workloads.items()
            }
        return tables

    @field_validator("kafka")
    @classmethod
    def _has_a_broker(cls, value: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if not isinstance(value[BOOTSTRAP_KEY], str) or not value[BOOTSTRAP_KEY]:
            raise ValueError(f'"{BOOTSTRAP_KEY}" must be text such as "{DEFAULT_BOOTSTRAP}"')
        return value

    @field_validator("schema_registry")
    @classmethod
    def _known_to_clients(cls, value: dict[str, JsonValue]) -> dict[str, JsonValue]:
        return checked_registry(value)

    @field_validator("workloads")
    @classmethod
    def _named_alike(cls, value: dict[str, WorkloadSettings]) -> dict[str, WorkloadSettings]:
        for key, workload in value.items():
            if workload.name != key:
                raise ValueError(f"{key} must not be given another name ({workload.name}): leave the name out")
        return value

    @field_validator("default_workload")
    @classmethod
    def _is_configured(cls, value: str | None, info: ValidationInfo) -> str | None:
        workloads = info.data.get("workloads")
        if value is not None and workloads is not None and value not in workloads:
            raise ValueError(
                f"is not configured; give one of {', '.join(workloads) or 'the workloads (there are none)'}"
            )
        return value

    @model_validator(mode="after")
    def _names_a_gateway_apart(self) -> Self:
        if self.gateway.instance_id == self.router.instance_id:
            raise ValueError(
                f"gateway.instance_id: {self.gateway.instance_id} is router.instance_id too, and one would report in "
                "the other's place: give each its own"
            )
        return self

    @model_validator(mode="after")
    def _notifies_of_configured_workloads(self) -> Self:
        for name, webhook in self.notify.webhooks.items():
            unknown = [workload for workload in webhook.workloads if workload not in self.workloads]
            if unknown:
                raise ValueError(
                    f"notify.webhooks.{name}.workloads: {', '.join(unknown)} is not configured; give one of "
                    f"{', '.join(self.workloads) or 'the workloads (there are none)'}"
                )
        return self

    @property
    def workload_of_unnamed(self) -> str | None:
        """The workload of queries that name none, or None where such queries are dead letters."""
        return self.default_workload or self.only_workload

    @property
    def results_schema_id(self) -> int | None:
        """The schema id in front of each result, or None where results are plain JSON."""
        return schema_id(self.schema_registry)

    @property
    def only_workload(self) -> str | None:
        """The name of the only workload, or None where there are several."""
        return next(iter(self.workloads)) if len(self.workloads) == 1 else None
