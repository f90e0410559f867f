"""Every key of ``ucci.toml`` as frozen types with defaults and bounds.

The file and the environment are read by :mod:`schemas.settings_text`. Numbers written as text, and booleans in place of
numbers, are refused rather than guessed at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal, Self, TypeVar, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, JsonValue, SecretStr, ValidationInfo, field_validator, model_validator

from schemas.json_bytes import MAX_SCHEMA_ID
from schemas.settings_section import (
    LOOPBACK_HOSTS,
    MIN_KEY_CHARS,
    REREAD,
    ApiKey,
    CallerKey,
    Host,
    HostName,
    Integer,
    KeyName,
    Number,
    Port,
    Seconds,
    Secret,
    Section,
    Share,
    StrippedText,
    long_enough,
)
from schemas.settings_workload import WorkloadSettings

__all__ = ["Settings", "WorkloadSettings"]

BOOTSTRAP_KEY = "bootstrap.servers"
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
#: Properties that hold a name or a secret, and are sent as they stand.
_CREDENTIAL = re.compile(r"username|password|secret|token")
#: Leaves three attempts to a large model that may take 30 s, after a small one that failed.
DEFAULT_QUERY_DEADLINE_S = 120.0


class TopicSettings(Section):
    """``[topics]``: how the topics are called and created."""

    #: What every topic's name begins with, before a dot.
    prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,200}$")] = "ucci"
    #: Partitions that ``topics create`` gives to topics that are not compacted.
    partitions: Annotated[Integer, Field(ge=1, le=10_000)] = 6
    #: Copies of each partition; -1 leaves it to the broker.
    replication_factor: Annotated[Integer, Field(ge=-1, le=100)] = -1
    #: With it routers write results in Confluent's wire format, under this id of a schema registry; without it results
    #: are plain JSON. Queries and feedback are read in both.
    results_schema_id: Annotated[Integer, Field(ge=0, le=MAX_SCHEMA_ID)] | None = None


class RouterSettings(Section):
    """``[router]``: one router instance."""

    #: Names the transactional.id: must differ between running instances and stay the same over restarts.
    instance_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,200}$")] = "router-0"
    #: Queries that are worked on at a time.
    max_in_flight: Annotated[Integer, Field(ge=1, le=100_000), REREAD] = 256
    #: Time between transactions; a result is seen after at most about this long.
    commit_interval_ms: Annotated[Integer, Field(ge=10, le=5_000)] = 200
    #: Address to listen at.
    http_host: Host = "127.0.0.1"
    #: Port of /healthz, /readyz, /metrics and /v1/status; 0 takes a free one.
    http_port: Port = 8081
    #: When the large model's server is down: ``serve_small`` serves valid small answers as degraded, ``wait`` stops the
    #: stream until it is back.
    large_outage: Annotated[Literal["serve_small", "wait"], REREAD] = "serve_small"
    #: Longest time that one query may spend at model servers, retries included, before it counts as failed there. Each
    #: model has one attempt of its whole ``timeout_s`` in any case. Time in a queue and time in which a server is down
    #: do not count.
    query_deadline_s: Annotated[Seconds, REREAD] = DEFAULT_QUERY_DEADLINE_S
    #: Directory in which the router keeps the last good calibration version of each workload, to decide by until the
    #: calibration topic brings one. Without it a router keeps nothing on disk.
    state_dir: Annotated[str, Field(min_length=1)] | None = None
    #: Names under which requests may ask for this router, as ``recalibrator.allowed_hosts`` does for the API.
    allowed_hosts: tuple[HostName, ...] = ()
    #: Which queries are labelled, explored and tried is drawn with this secret and the query's id. The same for all
    #: routers and gateways; at least 32 random characters. Without it producers can choose ids by their draws, while a
    #: gateway draws by a secret that ends with it.
    draw_key: Secret | None = None

    _cannot_be_found = field_validator("draw_key")(long_enough)

    @property
    def draw_with(self) -> bytes | None:
        """The key of the draws."""
        return None if self.draw_key is None else self.draw_key.get_secret_value().encode()


_Server = TypeVar("_Server", "GatewaySettings", "RecalibratorSettings")


def _require_keys(server: _Server) -> _Server:
    """Refuse to serve others without keys, be they on the network or on a page in the operator's browser."""
    if server.api_keys:
        return server
    if "*" in server.allowed_hosts:
        raise ValueError(
            "allowed_hosts: * lets any site that points its name at this machine use the API, as api_keys is "
            "empty: name the hosts, or add a key"
        )
    if server.http_host not in LOOPBACK_HOSTS:
        raise ValueError(
            f"http_host: {server.http_host} is reachable by others and api_keys is empty: add a key or use 127.0.0.1"
        )
    return server


class GatewaySettings(Section):
    """``[gateway]``: one gateway, which answers queries over HTTP in OpenAI's protocol."""

    #: ``routed_by`` of its results; must differ between running gateways, and from every router's.
    instance_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,200}$")] = "gateway-0"
    #: Address to listen at; one that others reach needs ``api_keys``.
    http_host: Host = "127.0.0.1"
    #: Port of /v1/completions, /v1/chat/completions, /v1/models, /v1/status, /healthz, /readyz and /metrics; 0 takes a
    #: free one.
    http_port: Port = 8082
    #: Callers by name; none leaves the gateway open to this machine alone.
    api_keys: Annotated[dict[KeyName, CallerKey], REREAD] = Field(default_factory=dict)
    #: Queries that are worked on at a time, those that wait for a model included; more are refused (429).
    max_in_flight: Annotated[Integer, Field(ge=1, le=100_000)] = 1_000
    #: Longest time that a caller waits; then the query is given up (504), without a result.
    answer_timeout_s: Seconds = 60.0
    #: Directory in which the gateway keeps the last good calibration versions, as ``router.state_dir`` does.
    state_dir: Annotated[str, Field(min_length=1)] | None = None
    #: Names under which requests may ask for this gateway, as ``recalibrator.allowed_hosts`` does for the API.
    allowed_hosts: tuple[HostName, ...] = ()

    _closed_to_others = model_validator(mode="after")(_require_keys)

    @property
    def max_connections(self) -> int:
        """Connections kept open: one in use and one at rest for each query that is worked on.

        Beyond them, or a quarter as many as the process may open files, the one that has waited longest for a request
        makes room.
        """
        return 2 * self.max_in_flight


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

    _closed_to_others = model_validator(mode="after")(_require_keys)


class CalibrationSettings(Section):
    """``[calibration]``: whose calibration versions count."""

    #: With it the fit signs its versions, and routers refuse all that are unsigned or signed by another key. The same
    #: for the fit and all routers; at least 32 random characters.
    signing_key: Secret | None = None
    #: Keys whose signatures routers take as well, while the key is being changed.
    former_keys: tuple[Secret, ...] = ()
    #: Most by which a version's expected escalation rate may differ from that of the version in force; routers refuse
    #: one that differs more, unless a person asked for it (``activate``, ``pin``, ``promote``, ``bootstrap``). A
    #: canary's share of that difference counts. Without it any difference is taken.
    max_escalation_jump: Annotated[Share | None, REREAD] = None
    #: How long ago, in seconds, a version may have been made for a router to take it that knows none: one that starts
    #: without ``router.state_dir``. Older ones may have been sent again by somebody; it begins cold.
    max_age_s: Annotated[Number, Field(gt=0.0)] | None = None

    _cannot_be_found = field_validator("signing_key", "former_keys")(long_enough)

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
    url: Secret
    #: Signs each notification (Standard Webhooks: ``webhook-id``, ``webhook-timestamp``, ``webhook-signature``); at
    #: least 16 characters, or base64 after ``whsec_``.
    secret: Secret | None = None
    #: Changes to be notified of: of the workload's ``state``, of ``drift``, of suspected ``labels`` or labelers set
    #: aside, of an ``outage`` of a model server.
    kinds: frozenset[NoticeKind] = frozenset(get_args(NoticeKind))
    #: Whose changes; by default those of all.
    workloads: tuple[KeyName, ...] = ()

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, value: SecretStr) -> SecretStr:
        with suppress(ValueError):
            parts = urlsplit(value.get_secret_value())
            if (
                " " not in value.get_secret_value()
                and parts.scheme in {"http", "https"}
                and parts.hostname
                and parts.port != 0
            ):
                return value
        raise ValueError("is not an address such as https://hooks.example.com/services/…")

    @field_validator("secret")
    @classmethod
    def _signs(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value()) < MIN_KEY_CHARS:
            raise ValueError(f"is empty or too short: give a random secret of at least {MIN_KEY_CHARS} characters")
        return value


class NotifySettings(Section):
    """``[notify]``: whom the fit notifies of changes."""

    #: Addresses by name.
    webhooks: dict[KeyName, Webhook] = Field(default_factory=dict)
    #: Where people reach the page, for links in notifications.
    page_url: Annotated[str, StrippedText, Field(pattern=r"^https?://[^\s/]+\S*$")] | None = None


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
        name = f"{prefix}{key}"
        flat |= dotted_properties(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return flat


def _in_one_line(name: str, value: JsonValue) -> JsonValue:
    """Return a property without line breaks around it; spaces stay, a password may begin or end with one.

    PEM has lines. Raises ValueError for a name or a password that has any inside, which the broker would refuse.
    """
    if not isinstance(value, str) or name.endswith(".pem"):
        return value
    value = value.strip("\r\n")
    if _CREDENTIAL.search(name) and not value.isprintable():
        raise ValueError(f'"{name}" holds a control or an invisible character inside: give it alone, on one line')
    return value


def _named(workloads: Iterable[str]) -> str:
    return ", ".join(workloads) or "the workloads (there are none)"


class Settings(Section):
    """The whole of ``ucci.toml``."""

    #: Any librdkafka property by its own name, handed through verbatim.
    kafka: dict[str, Annotated[JsonValue, AfterValidator(_only_scalar)]] = Field(default_factory=dict)

    topics: TopicSettings = TopicSettings()
    router: RouterSettings = RouterSettings()
    gateway: GatewaySettings = GatewaySettings()
    recalibrator: RecalibratorSettings = RecalibratorSettings()
    calibration: CalibrationSettings = CalibrationSettings()
    notify: NotifySettings = NotifySettings()
    workloads: dict[str, WorkloadSettings] = Field(default_factory=dict)
    #: Workload of queries that name none, where several are configured; without it they become dead letters. In the
    #: file it stands above the first table.
    default_workload: KeyName | None = None

    @model_validator(mode="before")
    @classmethod
    def _complete_tables(cls, data: object) -> object:
        """Put each workload's name, the key of its table, into the table; give Kafka's table flat keys and a broker."""
        if not isinstance(data, dict):
            return data
        tables = {"kafka": {}, **data}
        if isinstance(kafka := tables["kafka"], dict):
            tables["kafka"] = {BOOTSTRAP_KEY: DEFAULT_BOOTSTRAP, **dotted_properties(kafka)}
        if isinstance(workloads := tables.get("workloads"), dict):
            tables["workloads"] = {
                name: {"name": name, **table} if isinstance(table, dict) else table for name, table in workloads.items()
            }
        return tables

    @field_validator("kafka")
    @classmethod
    def _has_a_broker(cls, value: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if not isinstance(address := value[BOOTSTRAP_KEY], str) or not address.strip():
            raise ValueError(f'"{BOOTSTRAP_KEY}" must be text such as "{DEFAULT_BOOTSTRAP}"')
        return {name: _in_one_line(name, one) for name, one in value.items()}

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
            raise ValueError(f"is not configured; give one of {_named(workloads)}")
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
            if unknown := ", ".join(one for one in webhook.workloads if one not in self.workloads):
                remedy = f"give one of {_named(self.workloads)}"
                raise ValueError(f"notify.webhooks.{name}.workloads: {unknown} is not configured; {remedy}")
        return self

    @property
    def workload_of_unnamed(self) -> str | None:
        """The workload of queries that name none, or None where such queries are dead letters."""
        return self.default_workload or self.only_workload

    @property
    def only_workload(self) -> str | None:
        """The name of the only workload, or None where there are several."""
        return next(iter(self.workloads)) if len(self.workloads) == 1 else None
