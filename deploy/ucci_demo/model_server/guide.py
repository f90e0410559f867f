"""Decoding held to a JSON Schema: which tokens of a vocabulary may follow, by an automaton of bytes.

A guided sequence can never hold a token that leaves the schema; where a single token is possible its probability is 1.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ucci_demo.model_server.entity_schema import DEAD, Automaton, compile_schema, read_schema

#: What vLLM reports for a token that cannot be.
IMPOSSIBLE = np.float32(-9999.0)

_MAX_KEPT = 16


class Vocabulary:
    """The bytes of every token, by id; empty for those that must not be generated under a guide, such as padding."""

    def __init__(self, tokens: list[bytes], eos_id: int) -> None:
        self.eos_id = eos_id
        self.lengths = np.array([len(token) for token in tokens], dtype=np.intp)
        self.bytes = np.zeros((len(tokens), max(self.lengths)), dtype=np.uint8)
        for row, token in zip(self.bytes, tokens, strict=True):
            row[: len(token)] = list(token)


class Grammar:
    """One schema over one vocabulary; what may follow each state is worked out once."""

    def __init__(self, automaton: Automaton, vocabulary: Vocabulary) -> None:
        self._automaton = automaton
        self._vocabulary = vocabulary
        self._ends: dict[int, NDArray[np.int32]] = {}

    def guide(self) -> Guide:
        """Return a guide for one sequence."""
        return Guide(self, self._automaton.start)

    def ends(self, state: int) -> NDArray[np.int32]:
        """Return the state after each token, ``DEAD`` for a token that must not follow; shape (vocabulary,)."""
        if state not in self._ends:
            self._ends[state] = self._run(state)
        return self._ends[state]

    def _run(self, state: int) -> NDArray[np.int32]:
        vocabulary, table = self._vocabulary, self._automaton.table
        ends = np.where(vocabulary.lengths > 0, state, DEAD).astype(np.int32)
        for column in range(vocabulary.bytes.shape[1]):
            going = np.flatnonzero((ends != DEAD) & (vocabulary.lengths > column))
            if not going.size:
                break
            ends[going] = table[ends[going], vocabulary.bytes[going, column]]
        ends[vocabulary.eos_id] = state if state == self._automaton.accepting else DEAD
        if not (ends != DEAD).any():
            raise ValueError("the vocabulary has no token with which an answer could go on")
        return ends


class Guide:
    """Where one sequence stands in its grammar."""

    def __init__(self, grammar: Grammar, state: int) -> None:
        self._grammar = grammar
        self._state = state

    def apply(self, logprobs: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the log-probabilities among the tokens that may follow; all others are impossible."""
        allowed = self._grammar.ends(self._state) != DEAD
        kept = logprobs[allowed]
        top = kept.max()
        guided = np.full_like(logprobs, IMPOSSIBLE)
        guided[allowed] = kept - top - np.log(np.exp(kept - top).sum())
        return guided

    def advance(self, token_id: int) -> None:
        """Take the token that was chosen."""
        self._state = int(self._grammar.ends(self._state)[token_id])


class Grammars:
    """Compiled schemas, the last few kept."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._kept: dict[str, Grammar] = {}

    def of(self, schema: Any) -> Grammar:
        """Return the grammar of a schema. Raises UnsupportedSchemaError; see there."""
        key = json.dumps(schema)
        if key not in self._kept:
            grammar = Grammar(compile_schema(read_schema(schema)), self._vocabulary)
            if len(self._kept) >= _MAX_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = grammar
        return self._kept[key]
