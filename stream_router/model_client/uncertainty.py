"""A model server's reply → text, how it ended, and u. Pure.

Both shapes of log-probabilities are read: one mapping a token (completions) and a list of entries (chat; some servers
send it for completions too). The order of alternatives means nothing: they are sorted by value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

_NUMBERS = frozenset({float, int})
_IMPOSSIBLE = -9999.0
_PAIR = 2


class MalformedReplyError(ValueError):
    """The reply has not the shape of the protocol; the message says where."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model said.

    Parameters
    ----------
    text : str
    finish_reason : str or None
        ``stop`` is a whole answer; ``length`` and ``abort`` are cut ones, though the status is 200.
    completion_tokens : int
    uncertainty : float or None
        u in [0, 1]; None when no token carries probabilities.
    """

    text: str
    finish_reason: str | None
    completion_tokens: int
    uncertainty: float | None


def read_reply(body: bytes) -> Reply:
    """Parse a reply of ``/completions`` or ``/chat/completions``.

    Raises
    ------
    MalformedReplyError
        When it is not such a reply.
    """
    try:
        document = from_json(body)
    except ValueError as error:
        raise MalformedReplyError(f"not valid JSON: {error}") from None
    try:
        choice = document["choices"][0]
        text = choice["message"]["content"] if "message" in choice else choice["text"]
        margins = list(_margins(choice.get("logprobs")))
        counted = (document.get("usage") or {}).get("completion_tokens")
        reason = choice.get("finish_reason")
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise MalformedReplyError(f"not a completion: {type(error).__name__}: {error}") from None
    return Reply(
        text=text if isinstance(text, str) else "",
        finish_reason=reason if isinstance(reason, str) else None,
        completion_tokens=counted if isinstance(counted, int) and counted >= 0 else len(margins),
        uncertainty=uncertainty(margins),
    )


def uncertainty(margins: Iterable[float]) -> float | None:
    """Return u = 1 - mean of the tokens' margins (paper, equation 1), or None without tokens.

    Parameters
    ----------
    margins : iterable of float
        p1 - p2 of each token, the end of sequence included; each in [0, 1].

    Examples
    --------
    >>> uncertainty([1.0, 0.5])
    0.25
    >>> uncertainty([]) is None
    True
    """
    values = list(margins)
    if not values:
        return None
    return min(1.0, max(0.0, 1.0 - math.fsum(values) / len(values)))


def margin(logprobs: Iterable[float]) -> float:
    """Return p1 - p2 of one token's alternatives, in [0, 1].

    Parameters
    ----------
    logprobs : iterable of float
        Natural logarithms, in any order. A server writes -9999 for an impossible token, whose probability is 0. With
        one alternative alone the runner-up counts as impossible, so that the margin is p1.

    Raises
    ------
    ValueError
        If a value is not a number.

    Examples
    --------
    >>> margin([-9999.0, 0.0])
    1.0
    """
    first = second = 0.0
    for logprob in logprobs:
        probability = _probability(logprob)
        if probability > first:
            first, second = probability, first
        elif probability > second:
            second = probability
    return first - second


def _probability(logprob: float) -> float:
    # A bool is an int to Python, and NaN alone differs from itself.
    if type(logprob) not in _NUMBERS or logprob != logprob:  # noqa: PLR0124  the test for NaN, per token
        raise ValueError(f"log-probability {logprob!r} is not a number")
    # Servers round: a certain token may be reported a little above 0. Below, exp() is 0 long before it overflows.
    return math.exp(min(0.0, max(_IMPOSSIBLE, logprob)))


def _margins(logprobs: Any) -> Iterator[float]:
    """Yield the margin of each token that carries probabilities."""
    if logprobs is None:
        return
    if "content" in logprobs:
        for token in logprobs["content"] or ():
            if entries := token.get("top_logprobs"):
                # By place, not by text: two alternatives may read alike. The chosen token can be missing.
                chosen = (token["token"], token["logprob"])
                listed = [(entry["token"], entry["logprob"]) for entry in entries]
                yield margin(value for _, value in (listed if chosen in listed else [*listed, chosen]))
        return
    for alternatives in logprobs["top_logprobs"] or ():
        if len(alternatives or ()) == _PAIR:
            yield _pair_margin(*alternatives.values())
        elif alternatives:
            yield margin(alternatives.values())


def _pair_margin(one: Any, other: Any) -> float:
    """Return what :func:`margin` does of two alternatives, at a quarter of its cost: replies hold little else."""
    # NaN fails both comparisons; exp() of -9999 is 0.
    if type(one) is float and type(other) is float and one <= 0.0 and other <= 0.0:
        return abs(math.exp(one) - math.exp(other))
    return margin((one, other))
