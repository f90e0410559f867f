"""The automaton of a schema accepts what the schema allows, in JSON's own grammar, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_router.model_client.request import entities_schema
from ucci_demo.model_server.entity_schema import (
    DEAD,
    Automaton,
    Property,
    UnsupportedSchemaError,
    compile_schema,
    read_schema,
)

FIELDS = ("camera", 'a "b"', "größe")
SCHEMA = entities_schema(FIELDS)
AUTOMATON = compile_schema(read_schema(SCHEMA))

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.none() | texts | st.lists(texts, max_size=3)
answers = st.fixed_dictionaries(dict.fromkeys(FIELDS, values))


def run(automaton: Automaton, text: bytes) -> int:
    """Return the state after a text, or ``DEAD``."""
    state = automaton.start
    for byte in text:
        if state == DEAD:
            break
        state = int(automaton.table[state, byte])
    return state


def accepts(text: str | bytes) -> bool:
    return run(AUTOMATON, text if isinstance(text, bytes) else text.encode()) == AUTOMATON.accepting


@given(answers, st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_every_fitting_answer_is_accepted_with_any_spacing(
    answer: dict[str, Any], escaped: bool, indent: int | str | None
) -> None:
    answer = {name: answer[name] for name in FIELDS}
    text = json.dumps(answer, ensure_ascii=False, indent=indent)
    assert accepts(text)
    if escaped and all(ord(c) <= 0xFFFF for c in text):  # a pair of surrogates, escaped, is not offered
        keys = {json.dumps(name): json.dumps(name, ensure_ascii=False) for name in FIELDS}
        escapes = json.dumps(answer, indent=indent)
        for key, plain in keys.items():
            escapes = escapes.replace(f"{key}:", f"{plain}:")
        assert accepts(escapes)


@given(st.integers(0, 2**32 - 1))
def test_whatever_the_automaton_lets_through_is_json_that_fits(seed: int) -> None:
    draw = np.random.default_rng(seed)
    written = bytearray()
    state = AUTOMATON.start
    while state != AUTOMATON.accepting:
        ways = np.flatnonzero(AUTOMATON.table[state] != DEAD)
        assert ways.size, f"a dead end after {bytes(written)!r}"
        # Ways that end a string or the object are taken more often, or the walk would seldom end.
        closing = [way for way in ways if way in b'"}]']
        byte = int(draw.choice(closing if closing and draw.random() < 0.3 else ways))
        written.append(byte)
        state = int(AUTOMATON.table[state, byte])
    jsonschema.validate(json.loads(bytes(written)), SCHEMA)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        ' {"iso": null}',
        '{"iso": null} ',
        '{"iso": 100}',
        '{"iso": true}',
        '{"iso": {}}',
        '{"iso": [null]}',
        '{"iso": ["a",]}',
        '{"iso": "a" "b"}',
        '{"iso": "\n"}',
        '{"iso": "\\x"}',
        '{"iso": "\\ud800"}',
        '{"iso": "a"',
        '{"ISO": "a"}',
        '{"iso": "a", "lens": null}',
    ],
)
def test_what_does_not_fit_is_not_let_through(text: str) -> None:
    automaton = compile_schema(read_schema(entities_schema(("iso",))))
    assert run(automaton, text.encode()) != automaton.accepting


@pytest.mark.parametrize("byte", [b"\x80", b"\xc0\x80", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xff"])
def test_bytes_that_are_no_utf8_are_not_let_through(byte: bytes) -> None:
    automaton = compile_schema(read_schema(entities_schema(("iso",))))
    assert run(automaton, b'{"iso": "' + byte) == DEAD


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ("text", "the schema"),
        ({"type": "object"}, "properties"),
        ({"type": "array", "items": {"type": "string"}}, "items"),
        ({"type": "object", "properties": {"iso": {"type": "string"}}}, "required"),
        ({"type": "object", "properties": {"iso": {"type": "string"}}, "required": [1]}, "required"),
        ({"type": "object", "properties": {"iso": {"type": "number"}}, "required": ["iso"]}, "iso"),
        ({"type": "object", "properties": {"iso": {"type": "string", "pattern": "x"}}, "required": ["iso"]}, "pattern"),
        ({"type": "object", "properties": {"iso": {"type": "array"}}, "required": ["iso"]}, "iso.items"),
        ({"type": "object", "properties": {"iso": {"anyOf": []}}, "required": ["iso"]}, "iso"),
        (SCHEMA | {"additionalProperties": True}, "additionalProperties"),
        (SCHEMA | {"$defs": {}}, "defs"),
    ],
)
def test_unsupported_schema_is_refused_naming_the_part(schema: Any, named: str) -> None:
    with pytest.raises(UnsupportedSchemaError, match=named):
        read_schema(schema)


def test_a_plain_property_may_be_one_kind_alone() -> None:
    schema = {"type": "object", "properties": {"iso": {"type": "string"}}, "required": ["iso"]}
    assert read_schema(schema) == (Property("iso", ("string",)),)
    automaton = compile_schema(read_schema(schema))
    assert run(automaton, b'{"iso":"a"}') == automaton.accepting
    assert run(automaton, b'{"iso":n') == DEAD
