"""The uncertainty u of an answer from the log-probabilities of its tokens: a signal for each way to measure it. Pure.

A workload chooses its signal by name (``[workloads.NAME] uncertainty``). A calibration map belongs to the signal that
it was fitted on: results, labels and versions carry the name, and maps of another one are refused.

To add a signal: write its certainty of one token, put it into ``SIGNALS``, and add its name to
:data:`schemas.event.SignalKind`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from schemas.errors import one_line
from schemas.event import SignalKind

_NUMBERS = frozenset({float, int})
_IMPOSSIBLE = -9999.0
#: Servers round: a certain token may be reported a little above 0. What lies higher is no logarithm of a probability.
MOST_LOGPROB = 0.01
_PAIR = 2
_MAX_LINE = 200
#: As many as the OpenAI API gives for completions; a server that gives more is not asked for them.
_ENTROPY_ALTERNATIVES = 5


class SignalError(ValueError):
    """What a server gives as log-probabilities are none; the message names one of them."""


@dataclass(frozen=True, slots=True)
class UncertaintySignal:
    """One way to turn an answer's token probabilities into u = 1 - mean over the tokens of their certainty.

    Examples
    --------
    >>> TOKEN_MARGIN.of([[0.0, -9999.0], [-9999.0, -9999.0]])
    0.5
    >>> TOKEN_MARGIN.of([]) is None
    True
    """

    #: The name in settings, results and versions.
    kind: SignalKind
    #: How many of the most probable alternatives of each token are needed.
    alternatives: int
    #: The log-probabilities of one token's alternatives → how certain it is, in [0, 1]; NaN where all of them are null.
    certainty: Callable[[Collection[float]], float]

    def of(self, tokens: Collection[Collection[float]]) -> float | None:
        """Return u in [0, 1], or None without tokens.

        ``tokens``: natural logarithms of the alternatives of each token, the end of sequence included, in any order.
        There may be more than asked for. A server writes -9999, null or -Infinity for an impossible token, whose
        probability is 0; a token all of whose alternatives are null is left out. Raises SignalError if a value is no
        log-probability.
        """
        return uncertainty_of(self.certainties(tokens))

    def certainties(self, tokens: Collection[Collection[float]]) -> list[float]:
        """Return how certain each token is that carries probabilities. Raises SignalError."""
        found = list(map(self.certainty, tokens))
        # One NaN among them makes the sum NaN, which alone differs from itself.
        total = math.fsum(found)
        return found if total == total else [one for one in found if one == one]  # noqa: PLR0124


def uncertainty_of(certainties: Collection[float]) -> float | None:
    """Return u of an answer from how certain each of its tokens is: 1 - their mean, or None without tokens."""
    return min(1.0, max(0.0, 1.0 - math.fsum(certainties) / len(certainties))) if certainties else None


def margin(logprobs: Collection[float]) -> float:
    """Return p1 - p2 of one token's alternatives, in [0, 1] (paper, equation 1).

    With one alternative alone the runner-up counts as impossible, so that the margin is p1.
    """
    if len(logprobs) == _PAIR:
        one, other = logprobs
        # Replies hold little else, and this takes a quarter of the time. NaN fails both comparisons.
        if type(one) is float and type(other) is float and one <= 0.0 and other <= 0.0:
            return abs(math.exp(one) - math.exp(other))
    first = second = 0.0
    for probability in map(_probability, logprobs):
        if probability > first:
            first, second = probability, first
        elif probability > second:
            second = probability
    return first - second if first or not _are_null(logprobs) else math.nan


def highest(logprobs: Collection[float]) -> float:
    """Return p1, the probability of the most probable alternative."""
    found = max(map(_probability, logprobs), default=0.0)
    return found if found or not _are_null(logprobs) else math.nan


def concentration(logprobs: Collection[float]) -> float:
    """Return 1 - H / ln(count + 1), where H is the Shannon entropy of one token's distribution, truncated.

    The ``count`` most probable alternatives are outcomes of their own; what remains of the probability is one more, so
    that there are ``count + 1``, and H / ln(count + 1) lies in [0, 1]. Mass in the remainder counts as if on a single
    token: the truncated entropy is a lower bound of that over the whole vocabulary, and close to it wherever the
    remainder is small. The bound depends on ``count``, which is therefore fixed.

    Examples
    --------
    >>> concentration([0.0, -9999.0])
    1.0
    >>> round(concentration([math.log(1 / 6)] * 5), 12)
    0.0
    """
    count = _ENTROPY_ALTERNATIVES
    found = sorted(map(_probability, logprobs), reverse=True)[:count]
    known = math.fsum(found)
    if not known and _are_null(logprobs):
        return math.nan
    # Servers round: the sum may lie a little above 1.
    found = [p / known for p in found] if known > 1.0 else [*found, 1.0 - known]
    entropy = -math.fsum(p * math.log(p) for p in found if p > 0.0)
    return min(1.0, max(0.0, 1.0 - entropy / math.log(count + 1)))


def _probability(logprob: float | None) -> float:
    if logprob is None:
        # JSON has no -inf: some servers write null for it.
        return 0.0
    # A bool is an int to Python, and NaN alone differs from itself.
    if type(logprob) not in _NUMBERS or logprob != logprob:  # noqa: PLR0124  the test for NaN, per token
        raise SignalError(one_line(f"log-probability {logprob!r} is not a number", _MAX_LINE))
    if logprob > MOST_LOGPROB:
        line = f"log-probability {logprob!r} lies above 0, so that these are no log-probabilities (logits, perhaps)"
        raise SignalError(one_line(line, _MAX_LINE))
    # Below, exp() is 0 long before it overflows.
    return math.exp(min(0.0, max(_IMPOSSIBLE, logprob)))


def _are_null(logprobs: Collection[float | None]) -> bool:
    return bool(logprobs) and all(logprob is None for logprob in logprobs)


#: The paper's: u = 1 - mean(p1 - p2).
TOKEN_MARGIN = UncertaintySignal("token_margin", 2, margin)

#: Mean over the tokens of the normalised entropy of their most probable alternatives.
ENTROPY = UncertaintySignal("entropy", _ENTROPY_ALTERNATIVES, concentration)

#: u = 1 - mean(p1).
MAX_PROBABILITY = UncertaintySignal("max_probability", 1, highest)

#: By the name that settings choose.
SIGNALS: Mapping[SignalKind, UncertaintySignal] = {one.kind: one for one in (TOKEN_MARGIN, ENTROPY, MAX_PROBABILITY)}
