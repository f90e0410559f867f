"""Which settings of a new file a running service takes over, which wait for a restart, and what it says it runs with.

A setting that may be taken over is marked where it is defined (:data:`schemas.settings_section.REREAD`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from functools import reduce
from typing import Any, NamedTuple, Self

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from schemas.basis import prompt_digest
from schemas.errors import ConfigError
from schemas.settings import Settings
from schemas.settings_environment import value_type
from schemas.settings_section import REREAD, Section
from schemas.settings_text import shown
from schemas.settings_workload import WorkloadSettings

OF_ROUTER: tuple[str, ...] = ("kafka", "topics", "router", "calibration", "workloads", "default_workload")
OF_GATEWAY = (*OF_ROUTER, "gateway")
#: The tables and keys at the top of the file that each service goes by.
OF_RECALIBRATOR: tuple[str, ...] = ("kafka", "topics", "recalibrator", "calibration", "notify", "workloads")
#: A workload's name ends before the first key of its table, or at the end.
_OF_WORKLOAD = re.compile(rf"workloads\.(.+?)((?:\.(?:{'|'.join(WorkloadSettings.model_fields)})(?:\..*)?)?)")

#: What names and places a single process, and how it reaches the broker; the environment may give each its own.
OWN_SETTINGS = frozenset({"kafka", "instance_id", "http_host", "http_port", "probe_host", "probe_port", "state_dir"})


class Reread(NamedTuple):
    """Outcome of reloading a file."""

    #: From now on: as before, but for what was taken over.
    settings: Settings
    #: Keys that differ in the file: taken over, and in need of a restart. A workload that came or went is named as a
    #: whole.
    applied: tuple[str, ...]
    waiting: tuple[str, ...]
    #: Those of them that the file no longer sets: a file that was cut short is valid as often as not.
    gone: tuple[str, ...] = ()

    @classmethod
    def of(cls, running: Settings, found: Settings, parts: Collection[str]) -> Self:
        """Apply what may change from a reloaded file.

        ``parts``: tables and keys at the top of the file that the service uses. Raises ConfigError when what is taken
        over and what waits do not go together.
        """
        try:
            settings = Settings.model_validate(_merged(running, found, parts))
        except ValidationError as error:
            lines = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors(include_url=False)]
            remedy = "is taken over together with settings that need a restart, and does not fit them; restart"
            raise ConfigError([f"{line}: {remedy}" for line in lines]) from None
        applied = differing_keys(running, settings, parts)
        waiting = tuple(key for key in differing_keys(running, found, parts) if key not in applied)
        left = {".".join(path) for path, _ in _leaves(found, (), parts, without_defaults=True)}
        gone = tuple(one for one in (*applied, *waiting) if not any(f"{key}.".startswith(f"{one}.") for key in left))
        return cls(settings, applied, waiting, gone)


def key_path(key: str) -> tuple[str, ...]:
    """Return the names that a dotted key joins; that of a workload may itself hold dots.

    >>> key_path("workloads.reviews.v2.target")
    ('workloads', 'reviews.v2', 'target')
    """
    if found := _OF_WORKLOAD.fullmatch(key):
        return "workloads", found[1], *found[2].split(".")[1:]
    return tuple(key.split("."))


def is_reread(key: str) -> bool:
    """Return whether a dotted key is taken over on SIGHUP."""
    return _is_marked(key_path(key))


def _is_marked(path: Sequence[str]) -> bool:
    annotation: Any = Settings
    for name in path:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            field = annotation.model_fields.get(name)
            if field is not None and REREAD in field.metadata:
                return True
        annotation = value_type(annotation, name)
    return False


def differing_keys(before: Settings, after: Settings, parts: Collection[str]) -> tuple[str, ...]:
    """Return the dotted keys of which two files differ, in the order of the file."""
    old, new = dict(_leaves(before, (), parts)), dict(_leaves(after, (), parts))
    differing = [path for path in dict.fromkeys((*old, *new)) if old.get(path, _NONE) != new.get(path, _NONE)]
    moved = before.workloads.keys() ^ after.workloads.keys()
    named = (path[:2] if path[0] == "workloads" and moved.intersection(path[1:2]) else path for path in differing)
    # Of a table that came or went, the table alone.
    tables = {path for path in (*old, *new) if old.get(path, _NONE) is None or new.get(path, _NONE) is None}
    named = (next((path[:n] for n in range(1, len(path)) if path[:n] in tables), path) for path in named)
    return tuple(dict.fromkeys(".".join(path) for path in named))


def running_settings(settings: Settings, parts: Collection[str]) -> dict[str, str]:
    """Return what a service says that it runs with: what differs from the defaults, secrets redacted.

    JSON by dotted key; of a prompt its digest, of API keys whose they are. What names a single process is left out.
    """
    return {
        ".".join(path): _rendered(path, value)
        for path, value in _leaves(settings, (), parts, without_defaults=True)
        if path[-1] not in OWN_SETTINGS
    }


_NONE = object()


def _rendered(path: Sequence[str], value: Any) -> str:
    if path[-1] == "prompt":
        return json.dumps(f"sha256:{prompt_digest(value)}")
    if path[-1] == "api_keys":
        return json.dumps(sorted(value))
    dumped = value.model_dump(mode="json", exclude_none=True) if isinstance(value, BaseModel) else value
    return json.dumps(shown(dumped, tuple(path)), ensure_ascii=False, sort_keys=True, default=_listed)


def _listed(value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset) else shown(str(value), ())


def _leaves(
    table: BaseModel, path: tuple[str, ...], parts: Collection[str] = (), *, without_defaults: bool = False
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each value with its path: what is taken over as a whole is one value."""
    for name, field in type(table).model_fields.items():
        value = getattr(table, name)
        if (parts and name not in parts) or (without_defaults and _is_default(field, value)) or name == "name":
            continue
        if REREAD not in field.metadata and isinstance(value, Section):
            inner_leaves = list(_leaves(value, (*path, name), without_defaults=without_defaults))
            # A table that is there says something even where all in it is as by default.
            yield from inner_leaves or [((*path, name), value)]
        elif REREAD not in field.metadata and _is_of_tables(value):
            for key, inner in value.items():
                yield from _leaves(inner, (*path, name, key), without_defaults=without_defaults)
        else:
            yield (*path, name), value


def _is_default(field: FieldInfo, value: Any) -> bool:
    return not field.is_required() and bool(value == field.get_default(call_default_factory=True))


def _is_of_tables(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and all(isinstance(inner, Section) for inner in value.values())


def _merged(running: Settings, found: Settings, parts: Collection[str]) -> dict[str, Any]:
    """Return the running tables with the found values of all that is marked in them."""
    # What was left out stays so: two ways to say one thing exclude each other where both are given.
    tables = running.model_dump(exclude_unset=True)
    for path, value in _leaves(found, (), parts):
        if _is_marked(path) and (path[0] != "workloads" or path[1] in running.workloads):
            table = reduce(lambda outer, name: outer.setdefault(name, {}), path[:-1], tables)
            table[path[-1]] = value
    return tables
