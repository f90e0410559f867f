"""Each uncertainty signal: in [0, 1], monotone where it should be, and of the numbers that define it."""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.event import SignalKind
from stream_router.model_client.uncertainty import ENTROPY, MAX_PROBABILITY, SIGNALS, TOKEN_MARGIN, UncertaintySignal

LOGPROBS = st.floats(min_value=-50.0, max_value=0.0) | st.just(-9999.0)
NUMBERS = st.floats(allow_nan=False) | st.integers()
SHARES = st.floats(min_value=0.0, max_value=1.0)

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
    u = signal.of(tokens)
    assert (u is None) is (not tokens)
    assert u is None or 0.0 <= u <= 1.0


@each_signal
@given(token=st.lists(LOGPROBS, min_size=1, max_size=8), chance=st.randoms())
def test_the_order_of_alternatives_means_nothing(signal: UncertaintySignal, token: list[float], chance: Any) -> None:
    shuffled = list(token)
    chance.shuffle(shuffled)
    assert signal.of([shuffled]) == signal.of([token])


@each_signal
@given(likely=st.floats(min_value=0.5, max_value=1.0), other=st.floats(min_value=0.5, max_value=1.0))
def test_a_less_certain_token_has_no_smaller_u(signal: UncertaintySignal, likely: float, other: float) -> None:
    """Between two outcomes, of which the more probable one loses mass to the other."""
    sure, unsure = max(likely, other), min(likely, other)
    assert u_of(signal, logs(sure, 1.0 - sure)) <= u_of(signal, logs(unsure, 1.0 - unsure)) + 1e-12


@each_signal
@given(tokens=st.lists(st.lists(LOGPROBS, min_size=1, max_size=5), min_size=1, max_size=6))
def test_u_is_the_mean_over_the_tokens(signal: UncertaintySignal, tokens: list[list[float]]) -> None:
    alone = [u_of(signal, token) for token in tokens]
    assert signal.of(tokens) == pytest.approx(sum(alone) / len(alone), abs=1e-12)


@each_signal
def test_a_certain_token_has_u_zero(signal: UncertaintySignal) -> None:
    assert signal.of([[0.0]]) == signal.of([[0.0, -9999.0]]) == 0.0


@each_signal
@pytest.mark.parametrize("wrong", [math.nan, True, "0", None])
def test_what_is_no_log_probability_is_refused(signal: UncertaintySignal, wrong: Any) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        signal.of([[0.0, wrong]])


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


@given(st.lists(st.floats(min_value=0.01, max_value=1.0), min_size=6, max_size=6), SHARES)
def test_entropy_grows_towards_the_uniform(weights: list[float], share: float) -> None:
    """A mixture with the uniform distribution of the same outcomes is never more certain."""
    whole = sorted((weight / math.fsum(weights) for weight in weights), reverse=True)
    mixed = [(1.0 - share) * p + share / len(whole) for p in whole]
    assert u_of(ENTROPY, logs(*whole[:5])) <= u_of(ENTROPY, logs(*mixed[:5])) + 1e-9


def test_entropy_takes_no_alternative_beyond_those_asked_for() -> None:
    """A completion adds the chosen token: u must not depend on whether that is among the most probable ones."""
    five = [0.4, 0.2, 0.15, 0.1, 0.08]
    assert ENTROPY.of([logs(*five, 0.03)]) == ENTROPY.of([logs(*five)])


def test_entropy_survives_rounding_above_one() -> None:
    """The entropy of probabilities that rounding lifts above one stays defined."""
    expected = -(0.6 * math.log(0.6) + 0.4 * math.log(0.4)) / math.log(6)
    assert ENTROPY.of([logs(0.6, 0.4000001)]) == pytest.approx(expected, abs=1e-6)
