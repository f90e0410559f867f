"""``ucci.toml`` and the environment → :class:`~schemas.settings.Settings`, or every fault at once; and back to text.

Nothing is read from the process here except the file itself. Secrets never show in a fault or in the rendered settings.
Settings that are valid and probably not meant are named by :func:`settings_warnings`.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr, ValidationError

from schemas.errors import ConfigError
from schemas.settings import Settings
from schemas.settings_environment import KeyPath, nearest_key, override, valid_keys, value_type

REDACTED = "********"
_SECRET_PROPERTY = re.compile(
    r"passw|passphrase|pwd|secret|token|jaas|key\.pem|user\.info|oauthbearer\.config|credential|api.?key"
)
_SECRET_KEYS = frozenset({"key", "api_key", "signing_key", "former_keys", "draw_key", "secret"})
#: To the last @: a password may hold one, or a slash, where it was not percent-encoded.
_USER_INFO = re.compile(r"(?<=://)\S*@")

_ADDRESSES = frozenset({"base_url", "url"})
_MAY_HIDE = re.compile(r"[@?#]")
_SHOWN_CHARS = 80
_MOST_FAULTS = 100
#: Of parameters, as in ``gemma-3-4b-it``.
_BILLIONS = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)b(?![a-z0-9])", re.IGNORECASE)


def load_settings(path: Path | None, environ: Mapping[str, str]) -> Settings:
    """Read ``ucci.toml``; without a path, take defaults and the environment alone.

    ``environ``: that of the process; ``UCCI_<SECTION>__<KEY>`` overrides the file. Raises ConfigError with one line for
    each fault.
    """
    if path is None:
        return parse_settings("", environ)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}; give its path with --config"]) from None
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8"]) from None
    return parse_settings(text, environ, source=str(path))


def parse_settings(text: str, environ: Mapping[str, str], source: str = "ucci.toml") -> Settings:
    """Parse the text of ``ucci.toml``, lay the environment over it. Raises ConfigError with one line for each fault."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([f"{source}: is not valid TOML: {error}"]) from None
    except RecursionError:
        raise ConfigError([f"{source}: is nested too deeply"]) from None
    except ValueError:
        # What Python reads of no number: the parser leaves its limit of digits to it.
        raise ConfigError([f"{source}: is not valid TOML: a number has thousands of digits"]) from None
    variables, faults = override(tables, environ)
    try:
        settings = Settings.model_validate(tables)
    except ValidationError as error:
        raise ConfigError([*faults, *_faults(error, variables)]) from None
    if faults:
        raise ConfigError(faults)
    return settings


def require_models(settings: Settings) -> None:
    """Check that a router has a workload, and both models of each. Raises ConfigError with one line for each fault."""
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
    document = settings.model_dump(mode="json", exclude_none=True)
    for workload in document["workloads"].values():
        workload.pop("name")
    return json.dumps(shown(document, ()), indent=2, ensure_ascii=False) + "\n"


def is_secret(path: Sequence[str]) -> bool:
    """Return whether the value under a path of keys must never be shown.

    Examples
    --------
    >>> is_secret(["kafka", "sasl.password"]), is_secret(["kafka", "sasl.username"])
    (True, False)
    """
    if tuple(path[:1]) == ("kafka",):
        return any(_SECRET_PROPERTY.search(key.lower()) for key in path[1:])
    # The address of an incoming webhook is all that it takes to write there.
    return not _SECRET_KEYS.isdisjoint(path) or (tuple(path[:2]) == ("notify", "webhooks") and path[-1] == "url")


def shown(value: Any, path: tuple[str, ...]) -> Any:
    """Return a value as it may be shown, which stands under a path of keys: without secrets, at any depth."""
    if isinstance(value, dict):
        return {key: shown(inner, (*path, key)) for key, inner in value.items()}
    if isinstance(value, list):
        return [shown(inner, path) for inner in value]
    if is_secret(path):
        return REDACTED
    return _USER_INFO.sub(f"{REDACTED}@", value) if isinstance(value, str) else value


#: Keys of before the first release, and what does their work now.
_GONE = {
    "early_stop": "is gone: leave it out; `handoff` saves more",
    "certified": "is gone: leave it out; the status measures what was served",
    "explain_drift": "is gone: leave it out; ask `ucci-stream what-moved`",
    "schema_registry": "is gone: register by the registry's own means, and set topics.results_schema_id",
}


def _faults(error: ValidationError, variables: Mapping[KeyPath, str]) -> Iterator[str]:
    found_faults = error.errors(include_url=False)
    for found in found_faults[:_MOST_FAULTS]:
        path = tuple(str(part) for part in found["loc"])
        where = _named(path, variables)
        if found["type"] == "extra_forbidden":
            valid = valid_keys(reduce(value_type, path[:-1], Settings))
            yield f"{where}: {_GONE.get(path[-1]) or 'unknown key' + nearest_key(path[-1], valid)}"
        elif found["type"] == "missing":
            yield f"{where}: is required and missing"
        else:
            yield f"{where}: {_message(found['type'], found['msg'])}{_in_fault(path, found['input'])}"
    if len(found_faults) > _MOST_FAULTS:
        yield f"{len(found_faults) - _MOST_FAULTS} more faults; mend these first"


def _named(path: KeyPath, variables: Mapping[KeyPath, str]) -> str:
    """Return how the user calls a key: by the variable that set it, else by its place in the file."""
    for length in range(len(path), 0, -1):
        if path[:length] in variables:
            return ".".join((f"{variables[path[:length]]} ({'.'.join(path[:length])})", *path[length:]))
    inner = sorted(name for key, name in variables.items() if key[: len(path)] == path)
    return ".".join(path) + (f" (with {', '.join(inner)})" if inner and path else "")


def _message(kind: str, message: str) -> str:
    if kind in {"dict_type", "model_type"}:
        return "must be a table"
    message = message.removeprefix("Value error, ").removeprefix("Input ").removeprefix("String ")
    return message.replace("should be", "must be", 1).replace("should have", "must have", 1)


def _in_fault(path: KeyPath, value: Any) -> str:
    """Return the faulty value for the message, unless it is a whole table or may be a secret."""
    if is_secret(path) or path[1:2] == ("api_keys",) or isinstance(value, dict | SecretStr | BaseModel):
        return ""
    # Nobody can tell a mistyped address from its password, or a property from a secret.
    is_address = path[-1] in _ADDRESSES and isinstance(value, str) and _MAY_HIDE.search(value)
    if is_address or (path[0] == "kafka" and not isinstance(value, int | float)):
        return ""
    text = _USER_INFO.sub(f"{REDACTED}@", repr(value))
    return f" (got {text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + '…'})"


def settings_warnings(settings: Settings, *, at_start: bool = False) -> list[str]:
    """Return what an operator should look at, a line each; nothing of it keeps a service from running.

    ``at_start``: open draws are not warned of at each start of a service that nothing else guards either.
    """
    looks = (
        _voiceless_trust,
        _passwords_in_addresses,
        _nameless_queries,
        _swapped_models,
        _forgotten_versions,
        *(() if at_start and not (settings.gateway.api_keys or settings.calibration.signing_key) else (_open_draws,)),
    )
    return [line for look in looks for line in look(settings)]


def _forgotten_versions(settings: Settings) -> Iterator[str]:
    """Yield a line where a router that starts again knows no version to compare the next one with."""
    if settings.calibration.max_escalation_jump is not None and settings.router.state_dir is None:
        yield (
            "calibration.max_escalation_jump: is set without router.state_dir: a router that starts again has no "
            "version to compare with and takes the newest one; set router.state_dir"
        )


def _open_draws(settings: Settings) -> Iterator[str]:
    """Yield a line where producers can choose ids by what is drawn for them."""
    if settings.router.draw_key is None and settings.workloads:
        yield (
            f"router.draw_key: is not set: anyone who may write to {settings.topics.prefix}.queries can choose which "
            "queries are labelled, explored and tried, and so steer the fit (callers of a gateway cannot); set the "
            "same secret for every router and gateway"
        )


def _swapped_models(settings: Settings) -> Iterator[str]:
    """Yield a line for each workload whose two models look swapped by their names."""
    for name, workload in settings.workloads.items():
        small, large = workload.small, workload.large
        if small and large and (doubt := doubt_of_order(small.model, large.model)):
            yield f"workloads.{name}.large.model: {doubt}"


def doubt_of_order(small: str, large: str) -> str | None:
    """Return why the two models look swapped, by their names, or None where nothing says so.

    Examples
    --------
    >>> doubt_of_order("gemma-3-12b-it", "gemma-3-4b-it")
    'has 4 billion parameters by its name, and small has 12: are the two swapped?'
    >>> doubt_of_order("photo-large", "photo-small")
    'is called photo-small, and small is called photo-large: are the two swapped?'
    >>> doubt_of_order("gemma-3-4b-it", "gemma-3-12b-it") is None
    True
    """
    of_small, of_large = (max(map(float, _BILLIONS.findall(name)), default=None) for name in (small, large))
    if of_small is not None and of_large is not None and of_small > of_large:
        return f"has {of_large:g} billion parameters by its name, and small has {of_small:g}: are the two swapped?"
    if "large" in small.casefold() and "small" in large.casefold():
        names = [name.split(maxsplit=1)[0] for name in (large, small)]
        return f"is called {names[0]}, and small is called {names[1]}: are the two swapped?"
    return None


def _passwords_in_addresses(settings: Settings) -> list[str]:
    """Return a line for each model server whose address carries a password."""
    return [
        f"workloads.{name}.{role}.base_url: carries a user or password, which is sent to the server and shown nowhere; "
        "keep it out of the file: set base_url by its environment variable, or use api_key"
        for name, workload in settings.workloads.items()
        for role in ("small", "large")
        if (endpoint := getattr(workload, role)) is not None and endpoint.credentials is not None
    ]


def _nameless_queries(settings: Settings) -> Iterator[str]:
    """Yield a line where queries that name no workload belong to none."""
    if settings.workloads and settings.workload_of_unnamed is None:
        yield (
            f"default_workload: is not set and several workloads are configured ({', '.join(settings.workloads)}): "
            "queries that name none become dead letters (missing_workload); set it to one of them, or have producers "
            "name theirs"
        )


def _voiceless_trust(settings: Settings) -> Iterator[str]:
    """Yield a line for each workload that trusts labelers as whom no key can speak."""
    keys = settings.recalibrator.api_keys
    # Without keys, and with one that relays, anybody may be named.
    if not keys or any("relay" in key.scopes for key in keys.values()):
        return
    bound = {labeler for name, key in keys.items() if key.gives_feedback for labeler in key.labelers or (name,)}
    for name, workload in settings.workloads.items():
        if voiceless := ", ".join(labeler for labeler in workload.trusted_labelers if labeler not in bound):
            yield (
                f"workloads.{name}.trusted_labelers: no API key may speak as {voiceless}, so that nobody answers "
                "audits as them over HTTP; add them to the labelers of a key, or a key of the scope relay"
            )
