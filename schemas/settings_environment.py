"""Environment variables → the tables of ``ucci.toml``, laid over what the file says.

``UCCI_<SECTION>__<KEY>`` names a key; ``-`` and ``.`` become ``_``, lists and tables are given as JSON. Nothing is
read from the process. A variable that names no key is a fault, never ignored.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, SecretStr

from schemas.settings import BOOTSTRAP_KEY, Settings, dotted_properties

ENVIRONMENT_PREFIX = "UCCI_"
BOOTSTRAP_VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"
#: Variables with the prefix that other parts read and that name no key of the file.
NOT_SETTINGS = frozenset({"UCCI_CACHE_DIR", "UCCI_API_KEY", "UCCI_API_URL"})

_LEVEL = "__"
_LIKELY = 0.5
_LONGEST_CHARS = 100

KeyPath = tuple[str, ...]


def override(tables: dict[str, Any], environ: Mapping[str, str]) -> tuple[dict[KeyPath, str], list[str]]:
    """Lay the environment over the tables; return which variable set which key, and a line for each that could not."""
    # Its keys have dots, which TOML takes for tables where they stand unquoted.
    if isinstance(tables.get("kafka"), dict):
        tables["kafka"] = dotted_properties(tables["kafka"])
    variables: dict[KeyPath, str] = {}
    faults = []
    for variable in sorted(environ):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in NOT_SETTINGS:
            continue
        try:
            variables[_apply(tables, variable, environ[variable])] = variable
        except ValueError as error:
            faults.append(f"{variable}: {error}")
    _bootstrap(tables, environ, variables)
    return variables, faults


def nearest_key(name: str, known: Iterable[str]) -> str:
    """Return the ending of a message about an unknown key that names the nearest valid one.

    Examples
    --------
    >>> nearest_key("micro_f2", ["micro_f1", "safety"])
    '; did you mean micro_f1?'
    """
    valid = sorted(known)
    if not valid:
        return ""
    # A name may be as long as its file; nothing near is longer than a key.
    name = name[:_LONGEST_CHARS]
    near = difflib.get_close_matches(name, valid, n=1, cutoff=0.0)[0]
    if difflib.SequenceMatcher(None, name, near).ratio() >= _LIKELY:
        return f"; did you mean {near}?"
    return f"; the nearest valid key is {near}, of {', '.join(valid)}"


def value_type(annotation: Any, key: str) -> Any:
    """Return the type of the value under one key of a table of this type; None where any value may stand."""
    annotation = _plain(annotation)
    if _is_section(annotation):
        field = annotation.model_fields.get(key)
        return None if field is None else _plain(field.annotation)
    if get_origin(annotation) is dict:
        return _plain(get_args(annotation)[1])
    return None


def valid_keys(annotation: Any) -> list[str]:
    """Return the keys that a table of this type may hold; none where they are the user's to choose."""
    annotation = _plain(annotation)
    return [key for key in annotation.model_fields if key != "name"] if _is_section(annotation) else []


def _bootstrap(tables: dict[str, Any], environ: Mapping[str, str], variables: dict[KeyPath, str]) -> None:
    """Let the customary variable name the broker, unless the project's own one does."""
    kafka = tables.setdefault("kafka", {})
    path = ("kafka", BOOTSTRAP_KEY)
    named = path in variables or (("kafka",) in variables and BOOTSTRAP_KEY in kafka)
    if environ.get(BOOTSTRAP_VARIABLE) and not named and isinstance(kafka, dict):
        kafka[BOOTSTRAP_KEY] = environ[BOOTSTRAP_VARIABLE]
        variables[path] = BOOTSTRAP_VARIABLE


def _apply(tables: dict[str, Any], variable: str, raw: str) -> KeyPath:
    """Put one variable's value where its name says, and return that place."""
    names = variable.removeprefix(ENVIRONMENT_PREFIX).lower().split(_LEVEL)
    if not all(names):
        raise ValueError("has an empty part in its name; write UCCI_<SECTION>__<KEY>")
    table: Any = tables
    annotation: Any = Settings
    path: KeyPath = ()
    for name in names:
        if path:
            table = table.setdefault(path[-1], {}) if _is_table(annotation) else None
            if not isinstance(table, dict):
                raise ValueError(f"{'.'.join(path)} is not a table")
        path = (*path, _match(name, table, annotation, path))
        annotation = value_type(annotation, path[-1])
    value = _value(raw, annotation)
    table[path[-1]] = dotted_properties(value) if path == ("kafka",) and isinstance(value, dict) else value
    return path


def _match(name: str, table: Mapping[str, Any], annotation: Any, path: KeyPath) -> str:
    """Return the key that a part of a variable's name stands for."""
    known = valid_keys(annotation) or list(table)
    found = [key for key in known if _folded(key) == name]
    if len(found) > 1:
        raise ValueError(f"may mean {' or '.join(found)}; set it in the file instead")
    if found:
        return found[0]
    if path == ("kafka",):
        return name.replace("_", ".")
    where = f" in {'.'.join(path)}" if path else ""
    raise ValueError(f"unknown key {name}{where}{nearest_key(name, [_folded(key) for key in known])}")


def _folded(key: str) -> str:
    return key.replace("-", "_").replace(".", "_").lower()


def _value(raw: str, annotation: Any) -> Any:
    """Read a variable: text as it stands where text or a Kafka property is wanted, else JSON."""
    try:
        raw.encode()
    except UnicodeEncodeError:
        raise ValueError("is not UTF-8 text") from None
    if annotation is None or _is_text(annotation) or _plain(annotation) is _PROPERTY:
        return raw
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        if _is_table(annotation) or get_origin(annotation) in (tuple, frozenset):
            raise ValueError("must be JSON: a list or a table") from None
        return raw


def _is_text(annotation: Any) -> bool:
    if get_origin(annotation) is Literal:
        return all(isinstance(choice, str) for choice in get_args(annotation))
    return annotation in (str, SecretStr)


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _is_table(annotation: Any) -> bool:
    return _is_section(annotation) or get_origin(annotation) is dict


def _plain(annotation: Any) -> Any:
    """Strip ``Annotated`` and ``| None`` from a type."""
    if hasattr(annotation, "__metadata__"):
        return _plain(get_args(annotation)[0])
    choices = get_args(annotation)
    if NoneType in choices and len(choices) == 2:  # noqa: PLR2004 - a type or None
        return _plain(next(choice for choice in choices if choice is not NoneType))
    return annotation


_PROPERTY = value_type(Settings.model_fields["kafka"].annotation, "")
