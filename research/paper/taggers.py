"""Two small sequence labelers: tokens flow in, a label and its rivals' probabilities flow out, token by token.

A tagger reads an address from left to right and gives each token its likeliest label, given the tokens and the labels
that it chose before: an autoregressive model under greedy decoding, so that top-1 and top-2 probabilities of each step
are what equation 4 of the paper takes its margins from. Its step is a multinomial logistic regression. The two differ
in what they look at: the small one at the token and the label before it, the large one at its neighbours and parts too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from research.paper.labeled_addresses import Address
from research.paper.workloads import Floats

Features = dict[str, float]
Look = Callable[[Sequence[str], Sequence[str]], Features]
"""From all tokens and the labels given so far to what the next label is judged by."""
_START = "start"
_WINDOW = 2
_SHAPES = ((r"[A-Z]+", "A"), (r"[a-z]+", "a"), (r"[0-9]", "0"))


@dataclass(frozen=True, slots=True)
class Tagged:
    """What a tagger made of one address.

    ``probabilities``: ndarray of float, shape (tokens, labels); of each step; a row sums to 1.
    """

    labels: tuple[str, ...]
    probabilities: Floats


class GreedyTagger:
    """A step-by-step labeler.

    ``look``: what a step is judged by. ``freedom``: inverse strength of the ridge penalty.
    """

    def __init__(self, look: Look, freedom: float = 3.0) -> None:
        self._look = look
        self._step: Any = make_pipeline(DictVectorizer(), LogisticRegression(C=freedom, max_iter=500))

    def fit(self, addresses: Sequence[Address]) -> GreedyTagger:
        """Learn every step with the right labels before it, and return self."""
        features = [self._look(one.tokens, one.labels[:at]) for one in addresses for at in range(len(one.tokens))]
        self._step.fit(features, [label for one in addresses for label in one.labels])
        return self

    def tag(self, texts: Sequence[Sequence[str]]) -> list[Tagged]:
        """Label some token sequences, each step on the labels chosen before it."""
        labels: list[list[str]] = [[] for _ in texts]
        steps: list[list[Floats]] = [[] for _ in texts]
        for at in range(max(len(tokens) for tokens in texts)):
            live = [place for place, tokens in enumerate(texts) if len(tokens) > at]
            chances = self._step.predict_proba([self._look(texts[place], labels[place]) for place in live])
            for place, row in zip(live, chances, strict=True):
                labels[place].append(str(self._step.classes_[int(np.argmax(row))]))
                steps[place].append(row)
        return [Tagged(tuple(one), np.array(rows)) for one, rows in zip(labels, steps, strict=True)]


def look_briefly(tokens: Sequence[str], labels: Sequence[str]) -> Features:
    """Return what the small model looks at: the token, and the label before it."""
    token = tokens[len(labels)]
    before = labels[-1] if labels else _START
    return {f"word {_folded(token)}": 1.0, f"shape {_shape(token)}": 1.0, f"label before {before}": 1.0}


def look_closely(tokens: Sequence[str], labels: Sequence[str]) -> Features:
    """Return what the large model looks at: two tokens on either side, their parts, and the labels before."""
    at = len(labels)
    before = labels[-1] if labels else _START
    further = labels[-2] if len(labels) > 1 else _START
    found = {
        f"label before {before}": 1.0,
        f"labels before {further} {before}": 1.0,
        f"label and word {before} {_folded(tokens[at])}": 1.0,
        f"to the end {min(4, len(tokens) - 1 - at)}": 1.0,
        f"number before {any(token[:1].isdigit() for token in tokens[:at])}": 1.0,
    }
    for offset in range(-_WINDOW, _WINDOW + 1):
        found.update(dict.fromkeys(_neighbour(tokens, at, offset), 1.0))
    return found


def _neighbour(tokens: Sequence[str], at: int, offset: int) -> list[str]:
    """Name what is seen of the token so many places on."""
    if not 0 <= at + offset < len(tokens):
        return [f"{offset} none"]
    token = tokens[at + offset]
    word = _folded(token)
    seen = [f"{offset} word {'0' * len(word) if word.isdigit() else word}", f"{offset} shape {_shape(token)}"]
    if abs(offset) < _WINDOW:
        last = token[-1:]
        seen += [
            f"{offset} ends {word[-3:]}",
            f"{offset} begins {word[:2]}",
            f"{offset} stop {'' if last.isalnum() else last}",
        ]
    return seen


def _folded(token: str) -> str:
    return re.sub(r"\W", "", token.casefold())


def _shape(token: str) -> str:
    for pattern, sign in _SHAPES:
        token = re.sub(pattern, sign, token)
    return token


def signals(tagged: Tagged) -> dict[str, float]:
    """Return how uncertain a tagger was, in the paper's signals; larger is less certain.

    Returns ``margin``: u of equation 4, one less the mean of p1 - p2; ``entropy`` and ``likelihood``: mean entropy of a
    step and mean negative log-likelihood of what it chose, in nats; ``max_probability``: one less the mean p1;
    ``minimum_margin``: one less the least margin.
    """
    ranked = np.sort(tagged.probabilities, axis=1)
    best, margin = ranked[:, -1], ranked[:, -1] - ranked[:, -2]
    chances = np.clip(tagged.probabilities, 1e-300, None)
    return {
        "margin": float(1.0 - margin.mean()),
        "entropy": float(-(chances * np.log(chances)).sum(axis=1).mean()),
        "max_probability": float(1.0 - best.mean()),
        "minimum_margin": float(1.0 - margin.min()),
        "likelihood": float(-np.log(best).mean()),
    }
