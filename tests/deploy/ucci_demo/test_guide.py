"""Guided decoding: only tokens of the schema, probabilities among those alone."""

from __future__ import annotations

import json

import jsonschema
import numpy as np
import pytest

from tests.deploy.ucci_demo.test_entity_schema import run
from tests.support.demo_models import FIELDS, SCHEMA, checkpoint, generate, grammars
from ucci_demo.model_server.entity_schema import DEAD, compile_schema, read_schema
from ucci_demo.model_server.guide import Grammar, Grammars, Vocabulary

STRANGE = ("nikon z6 iso 400", 'a "quoted" \\ query', "☃ 日本 ☃ 日本", "pizza near me open late", "}{][")


@pytest.mark.parametrize("role", ["small", "large"])
def test_whatever_is_asked_the_answer_fits_the_schema(role: str) -> None:
    opened = checkpoint(role)
    for generation in generate(role, STRANGE, guided=True):
        if generation.finish_reason == "stop":
            text = opened.decode([token.token_id for token in generation.tokens])
            jsonschema.validate(json.loads(text), SCHEMA)
            assert tuple(json.loads(text)) == FIELDS
        else:
            assert len(generation.tokens) == 256


def test_vocabulary_bytes_equal_the_tokenizers_decoding() -> None:
    opened = checkpoint("small")
    vocabulary = opened.vocabulary()
    for text in ("Nikkor Z 58mm f/0.95", "café ☃ 日本 \n\t", '{"iso": null}'):
        ids = opened.encode(text)
        joined = b"".join(bytes(vocabulary.bytes[i, : vocabulary.lengths[i]]) for i in ids)
        assert joined.decode() == opened.tokenizer.decode(ids) == text
    assert vocabulary.lengths[opened.model.shape.eos_id] == 0


def test_token_is_allowed_where_the_automaton_accepts_it() -> None:
    tokens = [b"", b"", b"{", b'{"', b"iso", b'":', b" null", b"}", b'"', b"\xc3", b"\xa9", b"x", b"null}"]
    automaton = compile_schema(
        read_schema({"type": "object", "properties": {"iso": {"type": "null"}}, "required": ["iso"]})
    )
    grammar = Grammar(automaton, Vocabulary(tokens, eos_id=1))
    for prefix in (b"", b"{", b'{"', b'{"iso', b'{"iso":', b'{"iso": null'):
        ends = grammar.ends(run(automaton, prefix))
        assert ends.tolist() == [DEAD, DEAD, *(run(automaton, prefix + token) for token in tokens[2:])]
    assert np.flatnonzero(grammar.ends(automaton.accepting) != DEAD).tolist() == [1], "only the end may follow"


def test_probabilities_are_renormalised_over_allowed_tokens() -> None:
    grammar = grammars("small").of(SCHEMA)
    guide = grammar.guide()
    draw = np.random.default_rng(7)
    logits = draw.normal(size=checkpoint("small").model.vocabulary)
    logprobs = (logits - np.log(np.exp(logits).sum())).astype(np.float32)
    guided = guide.apply(logprobs)
    allowed = guided > -9999.0
    assert 0 < allowed.sum() < len(logprobs)
    assert np.exp(guided[allowed].astype(np.float64)).sum() == pytest.approx(1.0, abs=1e-5)
    spread = guided[allowed] - logprobs[allowed]
    assert np.ptp(spread) < 1e-4, "the odds between tokens that may follow stay as they were"


def test_compiled_schemas_are_cached_and_the_cache_is_bounded() -> None:
    kept = Grammars(checkpoint("small").vocabulary())
    first = kept.of(SCHEMA)
    assert kept.of(json.loads(json.dumps(SCHEMA))) is first
    for number in range(20):
        kept.of({"type": "object", "properties": {f"f{number}": {"type": "null"}}, "required": [f"f{number}"]})
    assert kept.of(SCHEMA) is not first


def test_a_vocabulary_that_cannot_write_the_answer_is_refused() -> None:
    automaton = compile_schema(read_schema(SCHEMA))
    with pytest.raises(ValueError, match="no token with which an answer could go on"):
        Grammar(automaton, Vocabulary([b"", b"x"], eos_id=0)).ends(automaton.start)
