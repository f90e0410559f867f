"""The bytes that an answer may consist of, as a finite automaton built from a JSON Schema of entities. Pure.

An object whose properties, all required and in the schema's order, are texts, lists of texts, null, or one of these.
White space may stand wherever JSON lets it, but not around the object. What leaves the automaton is always UTF-8.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["string", "array", "null"]
_KINDS: tuple[Kind, ...] = ("string", "array", "null")
_WHITE = b" \n\t"
_HEX = b"0123456789abcdefABCDEF"
_SURROGATE_D = b"dD"
DEAD = -1


class UnsupportedSchemaError(ValueError):
    """The schema says something that this server does not know how to hold an answer to."""


@dataclass(frozen=True, slots=True)
class Property:
    """One property of the object and what its value may be."""

    name: str
    kinds: tuple[Kind, ...]


def read_schema(schema: Any) -> tuple[Property, ...]:
    """Return the properties of an entities schema, in order.

    Raises UnsupportedSchemaError, naming the first part that is not supported.

    Examples
    --------
    >>> properties = {"iso": {"anyOf": [{"type": "string"}, {"type": "null"}]}}
    >>> read_schema({"type": "object", "properties": properties, "required": ["iso"]})
    (Property(name='iso', kinds=('string', 'null')),)
    """
    table = _keywords(schema, "the schema", {"type", "properties", "required", "additionalProperties"})
    properties = table.get("properties")
    if table.get("type") != "object" or not isinstance(properties, dict) or not properties:
        raise UnsupportedSchemaError("the schema must be an object with properties")
    required = table.get("required", [])
    if not isinstance(required, list) or sorted(map(str, required)) != sorted(properties):
        raise UnsupportedSchemaError("required: this demo server needs every property, and no other, to be required")
    if table.get("additionalProperties", False) is not False:
        raise UnsupportedSchemaError("additionalProperties: this demo server takes false alone")
    return tuple(Property(name, _kinds(value, name)) for name, value in properties.items())


def _kinds(schema: Any, name: str) -> tuple[Kind, ...]:
    choices = schema["anyOf"] if isinstance(schema, dict) and set(schema) == {"anyOf"} else [schema]
    if not isinstance(choices, list) or not choices:
        raise UnsupportedSchemaError(f"{name}: anyOf must be a list of schemas")
    found = [_kind(choice, name) for choice in choices]
    return tuple(kind for kind in _KINDS if kind in found)


def _kind(schema: Any, name: str) -> Kind:
    table = _keywords(schema, name, {"type", "items"})
    kind = table.get("type")
    if kind == "array" and _keywords(table.get("items"), f"{name}.items", {"type"}).get("type") == "string":
        return "array"
    if kind in ("string", "null") and "items" not in table:
        return "string" if kind == "string" else "null"
    raise UnsupportedSchemaError(f"{name}: must be a string, an array of strings or null")


def _keywords(schema: Any, where: str, known: set[str]) -> dict[str, Any]:
    if not isinstance(schema, dict):
        raise UnsupportedSchemaError(f"{where}: must be an object")
    unknown = sorted(set(schema) - known)
    if unknown:
        raise UnsupportedSchemaError(f"{where}: the keyword {unknown[0]} is not supported by this demo server")
    return schema


@dataclass(frozen=True, slots=True)
class Automaton:
    """States and the byte that leads from one to another."""

    #: The next state, ``DEAD`` where there is none.
    table: NDArray[np.int32]
    #: The answer is complete in ``accepting`` alone, and nothing may follow there.
    start: int
    accepting: int


class _Builder:
    """Makes states one by one; a state may get several ways out, never two on one byte.

    ``literal``, ``string`` and ``strings`` lead from one state to another over what they are named after.
    """

    def __init__(self) -> None:
        self.rows: list[NDArray[np.int32]] = []

    def state(self) -> int:
        """Return a new state without a way out."""
        self.rows.append(np.full(256, DEAD, np.int32))
        return len(self.rows) - 1

    def link(self, source: int, over: Iterable[int], target: int) -> None:
        """Lead from one state to another over any of these bytes."""
        self.rows[source][list(over)] = target

    def spaced(self) -> int:
        """Return a new state that white space leaves where it is."""
        state = self.state()
        self.link(state, _WHITE, state)
        return state

    def literal(self, source: int, text: bytes, target: int) -> None:
        for byte in text[:-1]:
            source, previous = self.state(), source
            self.link(previous, (byte,), source)
        self.link(source, text[-1:], target)

    def string(self, source: int, target: int) -> None:
        # RFC 8259, section 7.
        inside, escaped = self.state(), self.state()
        self.link(source, b'"', inside)
        self.link(inside, (byte for byte in range(0x20, 0x80) if byte not in b'"\\'), inside)
        self.link(inside, b'"', target)
        self.link(inside, b"\\", escaped)
        self.link(escaped, b'"\\/bfnrt', inside)
        # \uXXXX but no half of a surrogate pair: D800 to DFFF.
        first, second, after_d, third, fourth = (self.state() for _ in range(5))
        self.link(escaped, b"u", first)
        self.link(first, _HEX, second)
        self.link(first, _SURROGATE_D, after_d)
        self.link(second, _HEX, third)
        self.link(after_d, b"01234567", third)
        self.link(third, _HEX, fourth)
        self.link(fourth, _HEX, inside)
        self._multibyte(inside)

    def _multibyte(self, inside: int) -> None:
        """Let well-formed UTF-8 beyond ASCII stand in a string (Unicode, table 3-7)."""
        last, middle, before = self.state(), self.state(), self.state()
        rest = range(0x80, 0xC0)
        for state, following in ((last, inside), (middle, last), (before, middle)):
            self.link(state, rest, following)
        self.link(inside, range(0xC2, 0xE0), last)
        self.link(inside, range(0xE1, 0xF0), middle)
        self.link(inside, range(0xF1, 0xF4), before)
        narrow = ((0xE0, range(0xA0, 0xC0), last), (0xED, range(0x80, 0xA0), last))
        for lead, second, following in (*narrow, (0xF0, range(0x90, 0xC0), middle), (0xF4, range(0x80, 0x90), middle)):
            state = self.state()
            self.link(inside, (lead,), state)
            self.link(state, second, following)

    def strings(self, source: int, target: int) -> None:
        opened, item, done = self.spaced(), self.spaced(), self.spaced()
        self.link(source, b"[", opened)
        self.link(opened, b"]", target)
        self.string(opened, done)
        self.string(item, done)
        self.link(done, b",", item)
        self.link(done, b"]", target)


def compile_schema(properties: tuple[Property, ...]) -> Automaton:
    """Return the automaton of all answers that fit the properties."""
    build = _Builder()
    start, accepting = build.state(), build.state()
    at, opening = start, b"{"
    for prop in properties:
        before_key, after_key, before_value, after_value = (build.spaced() for _ in range(4))
        build.link(at, opening, before_key)
        build.literal(before_key, json.dumps(prop.name, ensure_ascii=False).encode(), after_key)
        build.link(after_key, b":", before_value)
        if "string" in prop.kinds:
            build.string(before_value, after_value)
        if "array" in prop.kinds:
            build.strings(before_value, after_value)
        if "null" in prop.kinds:
            build.literal(before_value, b"null", after_value)
        at, opening = after_value, b","
    build.link(at, b"}", accepting)
    return Automaton(np.stack(build.rows), start, accepting)
