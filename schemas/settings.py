"""Every key of ``ucci.toml`` as frozen types with defaults and bounds; reading the file is :mod:`schemas.settings_text`."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from schemas.calibration import ModelCosts, Signal, Target
from schemas.event import Probability

TEXT_PLACEHOLDER = "{text}"
LOOPBACK_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})

Port = Annotated[int, Field(ge=0, le=65_535)]
Seconds = Annotated[float, Field(gt=0.0, le=3_600.0)]


class Section(BaseModel):
    """A table of the file: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)


class TopicSettings(Section):
    """``[topics]``."""

    prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,200}$")] = "ucci"
    partitions: Annotated[int, Field(ge=1, le=10_000)] = 6
    replication_factor: Annotated[int, Field(ge=-1, le=100)] = -1


class RouterSettings(Section):
    """``[router]``."""

    instance_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,200}$")] = "router-0"
    max_in_flight: Annotated[int, Field(ge=1, le=100_000)] = 256
    commit_interval_ms: Annotated[int, Field(ge=10, le=5_000)] = 200
    http_host: str = "127.0.0.1"
    http_port: Port = 8081
    large_outage: Literal["serve_small", "wait"] = "serve_small"
    drain_timeout_s: Annotated[float, Field(gt=0.0, le=18.0)] = 12.0


class ApiKey(Section):
    """One caller's key; give its hash rather than the key itself."""

    key: SecretStr | None = None
    key_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    scopes: frozenset[Literal["read", "feedback", "admin"]] = frozenset({"read"})
    quota_per_minute: Annotated[int, Field(ge=1)] = 6_000

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.key is None) == (self.key_sha256 is None):
            raise ValueError("give either key_sha256 or key")
        return self


class RecalibratorSettings(Section):
    """``[recalibrator]``."""

    http_host: str = "127.0.0.1"
    http_port: Port = 8080
    state_dir: str = "./state"
    max_body_bytes: Annotated[int, Field(ge=1_000, le=100_000_000)] = 1_000_000
    api_keys: dict[str, ApiKey] = Field(default_factory=dict)
    commit_interval_ms: Annotated[int, Field(ge=10, le=10_000)] = 250
    join_retention_s: Annotated[float, Field(gt=0.0)] = 14 * 24 * 3600.0
    join_max_rows: Annotated[int, Field(ge=1_000)] = 5_000_000

    @model_validator(mode="after")
    def _loopback_without_keys(self) -> Self:
        if not self.api_keys and self.http_host not in LOOPBACK_HOSTS:
            raise ValueError(
                f"http_host: {self.http_host} is reachable by others and api_keys is empty: add a key or use 127.0.0.1"
            )
        return self


class ModelEndpoint(Section):
    """One model server."""

    base_url: Annotated[str, Field(pattern=r"^https?://[^\s]+$")]
    model: Annotated[str, Field(min_length=1)]
    timeout_s: Seconds = 10.0
    max_concurrency: Annotated[int, Field(ge=1, le=10_000)] = 256
    max_attempts: Annotated[int, Field(ge=1, le=20)] = 3
    api_key: SecretStr | None = None


class Sampling(Section):
    """What is explored and what people are asked to label."""

    exploration_probability: Probability = 0.03
    label_probability_kept: Probability = 0.05
    label_probability_escalated: Probability = 0.10

    @model_validator(mode="after")
    def _exploration_is_labelled(self) -> Self:
        lowest = min(self.label_probability_kept, self.label_probability_escalated)
        if self.exploration_probability > lowest:
            raise ValueError(
                f"exploration_probability {self.exploration_probability} exceeds a label probability ({lowest}): "
                "explored queries must be labelled; lower it or raise the label probability"
            )
        return self


class WorkloadSettings(Section):
    """``[workloads.NAME]``, its name included."""

    name: Annotated[str, Field(min_length=1, max_length=255)]
    prompt: Annotated[str, Field(max_length=100_000)] = TEXT_PLACEHOLDER
    fields: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=255)], ...], Field(min_length=1)]
    api: Literal["completions", "chat"] = "completions"
    decoding: Literal["free", "json_schema"] = "free"
    max_tokens: Annotated[int, Field(ge=1, le=100_000)] = 256
    small: ModelEndpoint | None = None
    large: ModelEndpoint | None = None
    target: Target
    sampling: Sampling = Sampling()
    cost: ModelCosts | None = None

    @field_validator("prompt")
    @classmethod
    def _holds_the_text(cls, value: str) -> str:
        if TEXT_PLACEHOLDER not in value:
            raise ValueError(f"must contain {TEXT_PLACEHOLDER}, which is replaced by the query's text")
        return value

    @field_validator("target", "cost", mode="before")
    @classmethod
    def _no_unknown_keys(cls, value: object, info: ValidationInfo) -> object:
        """Refuse what the shared types, tolerant as parts of events, would ignore."""
        known = (Target if info.field_name == "target" else ModelCosts).model_fields
        for key in value if isinstance(value, dict) else ():
            if key not in known:
                near = get_close_matches(str(key), known, n=1, cutoff=0.0)
                raise ValueError(f"unknown key {key}; did you mean {near[0]}?")
        return value

    @field_validator("fields")
    @classmethod
    def _distinct(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) != len(value):
            raise ValueError("must not name a field twice")
        return value

    @property
    def signal(self) -> Signal:
        """What u is measured on under these settings."""
        return Signal(small_model=self.small.model if self.small else "small", decoding=self.decoding)


class Settings(Section):
    """The whole of ``ucci.toml``."""

    kafka: dict[str, JsonValue] = Field(default_factory=lambda: {"bootstrap.servers": "127.0.0.1:9092"})
    topics: TopicSettings = TopicSettings()
    router: RouterSettings = RouterSettings()
    recalibrator: RecalibratorSettings = RecalibratorSettings()
    workloads: dict[str, WorkloadSettings] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _name_the_workloads(cls, data: object) -> object:
        """Put each workload's name, the key of its table, into the table."""
        if not isinstance(data, dict) or not isinstance(data.get("workloads"), dict):
            return data
        named = {
            name: {"name": name, **table} if isinstance(table, dict) else table
            for name, table in data["workloads"].items()
        }
        return {**data, "workloads": named}

    @property
    def only_workload(self) -> str | None:
        """The name of the only workload, or None where there are several."""
        return next(iter(self.workloads)) if len(self.workloads) == 1 else None
