"""Each uncertainty signal: in [0, 1], and of the numbers that define it."""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.event import SignalKind
from stream_router.model_client.uncertainty import (
    ENTROPY,
    MAX_PROBABILITY,
    MOST_LOGPROB,
    SIGNALS,
    TOKEN_MARGIN,
    SignalError,
    UncertaintySignal,
)

LOGPROBS = st.floats(min_value=-50.0, max_value=0.0) | st.just(-9999.0)
#: Logarithms of probabilities as servers write them: rounded, and null or -Infinity for an impossible token.
NUMBERS = st.floats(max_value=MOST_LOGPROB, allow_nan=False) | st.integers(max_value=0) | st.none()

each_signal = pytest.mark.parametrize("signal", SIGNALS.values(), ids=SIGNALS)


def logs(*probabilities: float) -> list[float]:
    """Return one token's log-probabilities."""
    return [math.log(p) if p > 0.0 else -9999.0 for p in probabilities]


def u_of(signal: UncertaintySignal, *tokens: list[float]) -> float:
    u = signal.of(tokens)
    assert u is not None
    return u


def test_every_signal_of_the_settings_has_an_implementation() -> None:
    assert {kind: signal.kind for kind, signal in SIGNALS.items()} == {kind: kind for kind in get_args(SignalKind)}


@each_signal
@given(tokens=st.lists(st.lists(NUMBERS, min_size=1, max_size=8), max_size=10))
def test_u_lies_in_range_whatever_numbers_a_server_sends(signal: UncertaintySignal, tokens: list[list[float]]) -> None:
    """A token without a single number is left out; of others, a null is an impossible alternative."""
    u = signal.of(tokens)
    known = [token for token in tokens if any(value is not None for value in token)]
    assert u == signal.of([[-9999.0 if value is None else value for value in token] for token in known])
    assert (u is None) is (not known)
    assert u is None or 0.0 <= u <= 1.0


NO_LOGPROBS: tuple[Any, ...] = (0.011, 1, 23.5, 10**30, math.inf, math.nan, True, "-0.1", [], {})


@each_signal
@pytest.mark.parametrize("number", NO_LOGPROBS, ids=repr)
def test_numbers_that_are_no_logprobs_give_no_u(signal: UncertaintySignal, number: Any) -> None:
    for token in ([number], [-0.1, number], [number, -0.1]):
        with pytest.raises(SignalError, match="log-probability"):
            signal.of([[-0.1, -3.0], token])


@each_signal
def test_a_little_above_zero_is_rounding(signal: UncertaintySignal) -> None:
    assert signal.of([[MOST_LOGPROB, -9999.0]]) == signal.of([[0.0, -9999.0]]) == 0.0


@each_signal
def test_a_certain_token_has_u_zero(signal: UncertaintySignal) -> None:
    assert signal.of([[0.0]]) == signal.of([[0.0, -9999.0]]) == 0.0


@given(st.lists(LOGPROBS, min_size=2, max_size=8))
def test_the_margin_is_that_of_the_two_most_probable(token: list[float]) -> None:
    top, second = sorted((math.exp(lp) for lp in token), reverse=True)[:2]
    assert TOKEN_MARGIN.of([token]) == pytest.approx(1.0 - (top - second), abs=1e-12)


@given(st.lists(LOGPROBS, min_size=1, max_size=8))
def test_the_max_probability_is_that_of_the_first(token: list[float]) -> None:
    assert MAX_PROBABILITY.of([token]) == pytest.approx(1.0 - math.exp(max(token)), abs=1e-12)


@given(st.lists(st.floats(min_value=0.01, max_value=1.0), min_size=6, max_size=12))
def test_truncated_entropy_is_a_lower_bound(weights: list[float]) -> None:
    """Of the entropy of the whole distribution, since the remainder counts as one outcome. Both in nats."""
    whole = [weight / math.fsum(weights) for weight in weights]
    entropy = -math.fsum(p * math.log(p) for p in whole)
    seen = u_of(ENTROPY, logs(*sorted(whole, reverse=True)[: ENTROPY.alternatives]))
    assert seen * math.log(ENTROPY.alternatives + 1) <= entropy + 1e-9


def test_entropy_takes_no_alternative_beyond_those_asked_for() -> None:
    """A completion adds the chosen token: u must not depend on whether that is among the most probable ones."""
    five = [0.4, 0.2, 0.15, 0.1, 0.08]
    assert ENTROPY.of([logs(*five, 0.03)]) == ENTROPY.of([logs(*five)])


def test_entropy_survives_rounding_above_one() -> None:
    """The entropy of probabilities that rounding lifts above one stays defined."""
    expected = -(0.6 * math.log(0.6) + 0.4 * math.log(0.4)) / math.log(6)
    assert ENTROPY.of([logs(0.6, 0.4000001)]) == pytest.approx(expected, abs=1e-6)
