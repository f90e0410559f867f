"""Hypothesis strategies of the values that events are made of."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, get_args

from hypothesis import strategies as st

from schemas import CostRate, Interval, ModelCosts, Signal, Target
from schemas.event import MAX_INTEGER

probabilities = st.floats(0.0, 1.0)
counts = st.integers(0, MAX_INTEGER)
ordinals = st.integers(1, MAX_INTEGER)
amounts = st.floats(0.0, float(MAX_INTEGER))
reals = st.floats(allow_nan=False, allow_infinity=False)
names = st.text(min_size=1, max_size=12)
texts = st.text(max_size=20)
timestamps = st.datetimes(datetime(1970, 1, 1), datetime(2999, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001 - hypothesis adds the zone
json_objects: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    texts,
    st.recursive(
        st.none() | st.booleans() | st.integers(-MAX_INTEGER, MAX_INTEGER) | reals | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=5,
    ),
    max_size=3,
)
entity_values = st.none() | texts | st.lists(texts, max_size=3).map(tuple)
entities = st.dictionaries(texts, entity_values, max_size=4)


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def each(strategy: st.SearchStrategy[Any], fields: str) -> dict[str, st.SearchStrategy[Any]]:
    """Return the strategy by each of these names."""
    return dict.fromkeys(fields.split(), strategy)


def few(strategy: st.SearchStrategy[Any], most: int = 2) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(strategy, max_size=most).map(tuple)


def choices(literal: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(get_args(literal))


def increasing(values: st.SearchStrategy[Any], size: int) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(values, min_size=size, max_size=size, unique=True).map(lambda drawn: tuple(sorted(drawn)))


intervals = st.builds(Interval, estimate=reals, lower=reals, upper=reals)
cost_rates = st.builds(CostRate, sequential=amounts, paper=amounts, large_only=amounts)
_prices = st.floats(0.0, float(MAX_INTEGER), exclude_min=True)
_inside = st.floats(0.0, 1.0, exclude_min=True, exclude_max=True)
targets = st.builds(
    Target,
    micro_f1=st.none() | _inside,
    safety=st.floats(0.0, 10.0),
    max_escalation=st.none() | _inside,
    cost=st.none() | _prices,
    fields=st.dictionaries(texts, _inside, max_size=2),
)
signals = st.builds(Signal, small_model=texts, decoding=st.sampled_from(["free", "json_schema"]))
model_costs = st.builds(ModelCosts, small=_prices, large=_prices)
