"""The reference pages: every key of ``ucci.toml`` and every topic, as Markdown.

They are made from the settings models with their docstrings and from the topic table, so that nothing is explained
twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from schemas.settings import BOOTSTRAP_KEY, DEFAULT_BOOTSTRAP, Settings
from schemas.settings_environment import BOOTSTRAP_VARIABLE, ENVIRONMENT_PREFIX, value_type
from schemas.settings_section import REREAD
from schemas.topics import ROOMY_MAX_MESSAGE_BYTES, TOPICS, Topic
from tools.docs.numpydoc import parameter_texts, summary

_GENERATED = "<!-- written by `make docs`; change the docstrings and types in schemas/ instead -->"
_UNITS = {
    "_ms": "ms",
    "_s": "s",
    "_bytes": "bytes",
    "_per_minute": "1/min",
    "max_tokens": "tokens",
    "safety": "standard errors",
    "cost.small": "price",
    "cost.large": "price",
}
_BOUNDS = (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<"))
_NAME = "NAME"
_REREAD = "*Re-read on SIGHUP.*"
_AS_IN = {
    ("gateway", "api_keys", _NAME): "recalibrator.api_keys.NAME",
    ("workloads", _NAME, "large"): "workloads.NAME.small",
}
"""Tables whose keys another one explains."""


def configuration_page() -> str:
    """Return the page of every key of ``ucci.toml``: type, default, unit, meaning and environment variable."""
    introduction = (
        "One file, `ucci.toml`, for every command. A key is overridden by the environment variable beside it; lists "
        "and tables are given there as JSON, and in `NAME` every `-` and `.` becomes `_`. Unknown keys are refused. "
        "`check-config` prints the settings in force, secrets redacted. A running service reads the file again on "
        "SIGHUP and takes over the keys that say so, with the tables below them; all others need a restart. Its "
        "environment stays as it was. `ucci-stream check-config --against-running` says before what a file will change "
        "([workloads](../workloads.md))."
    )
    lines = [
        _GENERATED,
        "# Configuration",
        "",
        introduction,
        "",
        "## kafka",
        "",
        f"{parameter_texts(Settings)['kafka']} An environment variable names it with `_` for each dot.",
        "",
        *_head("Key", "Type", "Default", "Unit", "Meaning", "Environment"),
        _row(
            f'`"{BOOTSTRAP_KEY}"`',
            "text",
            f"`{json.dumps(DEFAULT_BOOTSTRAP)}`",
            "",
            "Brokers to ask first, comma-separated.",
            f"`{_variable(('kafka', BOOTSTRAP_KEY))}`, `{BOOTSTRAP_VARIABLE}`",
        ),
    ]
    tables = [key for key in Settings.model_fields if _is_table(value_type(Settings, key))]
    lines += _keys_of_no_table([key for key in Settings.model_fields if key not in (*tables, "kafka")])
    for key in tables:
        lines += _table((key,), value_type(Settings, key))
    return "\n".join(lines) + "\n"


def _keys_of_no_table(keys: list[str]) -> Iterator[str]:
    """Yield the section of the keys that stand above the first table."""
    texts, properties = parameter_texts(Settings), Settings.model_json_schema()["properties"]
    yield from ("", "## Above the tables", "")
    yield from _head("Key", "Type", "Default", "Unit", "Meaning", "Environment")
    for key in keys:
        default = _default(Settings.model_fields[key])
        yield _row(f"`{key}`", _type(properties[key]), default, _unit((key,)), texts[key], f"`{_variable((key,))}`")


def _table(path: tuple[str, ...], annotation: Any, field: FieldInfo | None = None, about: str = "") -> Iterator[str]:
    """Yield the section of one table of the file, then those of the tables inside it."""
    if get_origin(annotation) is dict:
        yield from _table((*path, _NAME), value_type(annotation, _NAME), field, about)
        return
    yield from ("", f"## {'.'.join(path)}", "", f"{about} {_sentence(summary(annotation))}".strip(), "")
    if field is not None:
        whole = f"The whole table as JSON: `{_variable(path).removesuffix(f'__{_NAME}')}`."
        yield from (f"{whole} {_REREAD}" if REREAD in field.metadata else whole, "")
    if path in _AS_IN:
        keys = ", ".join(f"`{key}` (`{_variable((*path, key))}`)" for key in annotation.model_fields)
        yield f"Its keys are {keys}, as in [{_AS_IN[path]}](#{_AS_IN[path].replace('.', '').lower()})."
        return
    texts, properties = parameter_texts(annotation), annotation.model_json_schema().get("properties", {})
    inner = {key: value for key in annotation.model_fields if _is_table(value := value_type(annotation, key))}
    yield from _head("Key", "Type", "Default", "Unit", "Meaning", "Environment")
    for key, one in annotation.model_fields.items():
        if key == "name" or key in inner:
            continue
        yield _row(
            f"`{key}`",
            _type(properties[key]),
            _default(one),
            _unit((*path, key)),
            texts[key] + (f" {_REREAD}" if REREAD in one.metadata else ""),
            f"`{_variable((*path, key))}`",
        )
    for key, value in inner.items():
        yield from _table((*path, key), value, annotation.model_fields[key], texts[key])


def _sentence(text: str) -> str:
    """Return a docstring's summary as Markdown, without the table's name, which the heading already says."""
    about = text.rpartition("]``: ")[2].replace("``", "`")
    return about[:1].upper() + about[1:]


def _is_table(annotation: Any) -> bool:
    if get_origin(annotation) is dict:
        return _is_table(get_args(annotation)[1])
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _type(schema: dict[str, Any]) -> str:
    """Return a JSON Schema in a few words.

    Examples
    --------
    >>> _type({"type": "integer", "minimum": 1, "maximum": 20})
    'integer, ≥ 1, ≤ 20'
    """
    if "anyOf" in schema:
        return " or ".join(_type(choice) for choice in schema["anyOf"] if choice.get("type") != "null")
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(choice)}`" for choice in schema["enum"])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_type(schema['items'])}"
    words = [{"string": "secret text" if schema.get("format") == "password" else "text"}.get(kind, kind)]
    words += [
        f"{sign} {schema[bound]}".removesuffix(".0") for bound, sign in _BOUNDS if bound in schema and kind != "string"
    ]
    if "pattern" in schema:
        words.append(f"like `{schema['pattern']}`")
    return ", ".join(words)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None:
        return ""
    if isinstance(value, BaseModel):
        return "see below"
    return f"`{json.dumps(sorted(value) if isinstance(value, frozenset) else value, ensure_ascii=False)}`"


def _unit(path: tuple[str, ...]) -> str:
    dotted = ".".join(path)
    return next((unit for ending, unit in _UNITS.items() if dotted.endswith(ending)), "")


def _variable(path: tuple[str, ...]) -> str:
    return ENVIRONMENT_PREFIX + "__".join(path).upper().replace(".", "_").replace("-", "_")


def topics_page(prefix: str) -> str:
    """Return the page of the topics: key, value, policy, partitions, who sends and who receives."""
    introduction = (
        f"Names begin with `topics.prefix`, here `{prefix}`. Keys are UTF-8 text, values UTF-8 JSON; their schemas lie "
        "in `schemas/generated`, with `asyncapi.json` for tools. `results` and `feedback` should have equal "
        "partition counts; that of `join-repartition` never changes ([placement](../decisions/placement.md)). "
        "`ucci-stream topics create` makes them, `topics check` compares."
    )
    head = _head("Topic", "Key", "Value", "Cleanup", "Partitions", "Sent by", "Received by")
    rows = (
        _row(
            f"`{topic.name(prefix)}`",
            topic.key,
            _value(topic),
            _policy(topic),
            "as configured" if topic.partitions is None else str(topic.partitions),
            ", ".join(topic.senders),
            ", ".join(topic.receivers),
        )
        for topic in TOPICS
    )
    return "\n".join([_GENERATED, "# Topics", "", introduction, "", *head, *rows]) + "\n"


def _value(topic: Topic) -> str:
    if not topic.events:
        return topic.value
    return ", ".join(f"[{name}](../../schemas/generated/{name}.schema.json)" for name in topic.events)


def _policy(topic: Topic) -> str:
    words: list[str] = [topic.cleanup]
    if topic.retention_ms is not None:
        words.append(f"{topic.retention_ms // (24 * 3600 * 1000)} days")
    if topic.joined:
        words.append("at least `join_retention_s`")
    if topic.roomy:
        words.append(f"records up to {ROOMY_MAX_MESSAGE_BYTES} bytes")
    if topic.by_broker:
        words.append("dated by the broker")
    return ", ".join(words)


def _head(*titles: str) -> Iterator[str]:
    yield _row(*titles)
    yield _row(*("---" for _ in titles))


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("``", "`").replace("|", "\\|") for cell in cells) + " |"
