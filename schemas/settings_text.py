"""``ucci.toml`` and the environment → :class:`~schemas.settings.Settings`, or every fault at once; and back to text.

The text of the file and a mapping of environment variables flow in; nothing is read from the process here except the
file itself. Secrets never show in a fault or in the rendered settings.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, SecretStr, ValidationError

from schemas.errors import ConfigError
from schemas.settings import Settings, WorkloadSettings

ENVIRONMENT_PREFIX = "UCCI_"
BOOTSTRAP_VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"
BOOTSTRAP_KEY = "bootstrap.servers"
NOT_SETTINGS = frozenset({"UCCI_CACHE_DIR"})
REDACTED = "********"
_SECRET_WORDS = ("password", "secret", "token", "jaas", "key.pem", "api_key", "passphrase", "sasl.oauthbearer.config")
_LEVEL = "__"
_SHOWN_CHARS = 80


def load_settings(path: Path, environ: Mapping[str, str]) -> Settings:
    """Read ``ucci.toml``.

    Parameters
    ----------
    path : Path
    environ : mapping
        The process's environment; ``UCCI_<SECTION>__<KEY>`` overrides the file.

    Raises
    ------
    ConfigError
        With one line for each fault.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}; give its path with --config"]) from None
    except UnicodeDecodeError:
        raise ConfigError([f"{path}: is not UTF-8 text"]) from None
    return parse_settings(text, environ, source=str(path))


def parse_settings(text: str, environ: Mapping[str, str], source: str = "ucci.toml") -> Settings:
    """Parse the text of ``ucci.toml`` and lay the environment over it.

    Raises
    ------
    ConfigError
        With one line for each fault.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([f"{source}: is not valid TOML: {error}"]) from None
    faults = _override(tables, environ)
    try:
        settings = Settings.model_validate(tables)
    except ValidationError as error:
        faults.extend(_faults(error))
        raise ConfigError(faults) from None
    if faults:
        raise ConfigError(faults)
    return settings


def require_models(settings: Settings) -> None:
    """Check what only a router needs: at least one workload, and both models of each.

    Raises
    ------
    ConfigError
        With one line for each fault.
    """
    faults = [
        f"workloads.{name}.{role}: is missing; give base_url and model of the {role} model's server"
        for name, workload in settings.workloads.items()
        for role in ("small", "large")
        if getattr(workload, role) is None
    ]
    if not settings.workloads:
        faults.append("workloads: none is configured; add a table [workloads.NAME]")
    if faults:
        raise ConfigError(faults)


def render_settings(settings: Settings) -> str:
    """Return the effective settings as indented JSON, secrets redacted."""
    document = settings.model_dump(mode="json")
    for workload in document["workloads"].values():
        workload.pop("name")
    return json.dumps(_redacted(document), indent=2, ensure_ascii=False) + "\n"


def is_secret(key: str) -> bool:
    """Tell whether a key's value must never be shown.

    Examples
    --------
    >>> is_secret("sasl.password"), is_secret("sasl.username")
    (True, False)
    """
    return key == "key" or any(word in key.lower() for word in _SECRET_WORDS)


def _redacted(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _redacted(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [_redacted(inner) for inner in value]
    if isinstance(value, str) and is_secret(key) and key not in {"key_sha256", "api_keys"}:
        return REDACTED
    return value


def _override(tables: dict[str, Any], environ: Mapping[str, str]) -> list[str]:
    """Lay the environment over the tables, in place; return what is wrong with it."""
    faults = []
    if environ.get(BOOTSTRAP_VARIABLE):
        tables.setdefault("kafka", {})[BOOTSTRAP_KEY] = environ[BOOTSTRAP_VARIABLE]
    for variable in sorted(environ):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in NOT_SETTINGS:
            continue
        names = variable.removeprefix(ENVIRONMENT_PREFIX).lower().split(_LEVEL)
        fault = _set(tables, variable, names, environ[variable])
        if fault is not None:
            faults.append(fault)
    return faults


def _set(tables: dict[str, Any], variable: str, names: list[str], raw: str) -> str | None:
    """Put one variable's value where its name says; return a fault, if any."""
    table: dict[str, Any] = tables
    model: Any = Settings
    for depth, name in enumerate(names):
        known = _known_keys(model, table)
        key = next((k for k in known if _folded(k) == name), None)
        if key is None and names[0] == "kafka" and depth == 1:
            key = name.replace("_", ".")
        if key is None:
            where = "__".join(part.upper() for part in names[:depth])
            return (
                f"{variable}: unknown key{' in ' + where if where else ''}{_suggest(name, [_folded(k) for k in known])}"
            )
        model = _model_of(model, key)
        if depth == len(names) - 1:
            table[key] = _value(raw, is_table=_is_model(model))
            return None
        inner = table.setdefault(key, {})
        if not isinstance(inner, dict):
            return f"{variable}: {key} is not a table"
        table = inner
    return None


def _folded(key: str) -> str:
    return key.replace("-", "_").replace(".", "_").lower()


def _known_keys(model: Any, table: Mapping[str, Any]) -> list[str]:
    fields = list(model.model_fields) if _is_model(model) else []
    return [*table, *(field for field in fields if field not in table and field != "name")]


def _is_model(model: Any) -> bool:
    return isinstance(model, type) and issubclass(model, BaseModel)


def _model_of(model: Any, key: str) -> Any:
    """Return the model of a key's value, None where it is a plain value, or the values' model of a free table."""
    if _is_model(model) and key in model.model_fields:
        annotation = model.model_fields[key].annotation
        candidates = [annotation, *get_args(annotation)]
        found = next((c for c in candidates if _is_model(c)), None)
        if annotation is not None and found is not None and getattr(annotation, "__origin__", None) is dict:
            return _TableOf(found)
        return found
    return model.values if isinstance(model, _TableOf) else None


class _TableOf:
    """A table whose keys are the user's and whose values follow one model."""

    def __init__(self, values: type[BaseModel]) -> None:
        self.values = values


def _value(raw: str, *, is_table: bool) -> Any:
    """Read a variable: JSON where it is a list, a table, a number or a boolean; else the text itself."""
    if raw[:1] in ("{", "[") or is_table or raw in ("true", "false"):
        try:
            return json.loads(raw)
        except ValueError:
            return raw
    return raw


def _faults(error: ValidationError) -> Iterator[str]:
    for found in error.errors(include_url=False):
        location = [str(part) for part in found["loc"]]
        path = ".".join(location) or "settings"
        if found["type"] == "extra_forbidden":
            yield f"{path}: unknown key{_suggest(location[-1], _valid_keys(location))}"
        elif found["type"] == "missing":
            yield f"{path}: is required and missing"
        else:
            yield f"{path}: {found['msg'].removeprefix('Value error, ')}{_shown(location, found['input'])}"


def _shown(location: list[str], value: Any) -> str:
    """Return the faulty value for the message, unless it is a secret or a whole table."""
    if any(is_secret(part) for part in location) or isinstance(value, dict | SecretStr | BaseModel):
        return ""
    text = repr(value)
    return f" (got {text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + '…'})"


def _valid_keys(location: list[str]) -> list[str]:
    """Return the keys that are valid where the unknown one stands."""
    model: Any = Settings
    for part in location[:-1]:
        model = _model_of(model, part)
    return (
        [key for key in model.model_fields if not (model is WorkloadSettings and key == "name")]
        if _is_model(model)
        else []
    )


def _suggest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; valid keys are {', '.join(sorted(known))}" if known else ""
