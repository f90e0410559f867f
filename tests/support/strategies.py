"""Hypothesis strategies of every event, from what pydantic validates it by: any valid one, extreme values included."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, TypeVar, get_args

from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter

import schemas
from schemas import (
    CalibrationMap,
    CalibrationTrial,
    CalibrationVersion,
    Command,
    FeedbackEvent,
    GridSpec,
    LabelledExample,
    ModelCosts,
    ModelRun,
    OutcomeCounts,
    RoutedEvent,
    TrafficSummary,
    VersionTraffic,
)
from schemas.command import Action
from schemas.entities import Entities
from schemas.event import MAX_INTEGER, Event
from schemas.feedback import MAX_REVISION

Schema = dict[str, Any]
Strategy = st.SearchStrategy[Any]
Model = TypeVar("Model", bound=BaseModel)

probabilities = st.floats(0.0, 1.0)
shares = st.floats(0.0, 1.0, exclude_min=True)
counts = st.integers(0, MAX_INTEGER)
ordinals = st.integers(1, MAX_INTEGER)
revisions = st.integers(1, MAX_REVISION)
names = st.text(min_size=1, max_size=12)
texts = st.text(max_size=20)
timestamps = st.datetimes(datetime(1970, 1, 1), datetime(2999, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001 - hypothesis adds the zone
json_values: Strategy = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-MAX_INTEGER, MAX_INTEGER)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
json_objects = st.dictionaries(texts, json_values, max_size=3)


def few(strategy: Strategy, least: int = 0) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(strategy, min_size=least, max_size=2).map(tuple)


@st.composite
def any_of(draw: st.DrawFn, model: type[Model], /, **fields: Any) -> Model:
    """Draw a model with every field, or with those alone that it needs.

    ``fields``: values of some, or strategies of them.
    """
    given = {name: draw(one) if isinstance(one, st.SearchStrategy) else one for name, one in fields.items()}
    return model(**given, **draw(_others(model, frozenset(given))))


@cache
def _others(model: type[BaseModel], given: frozenset[str]) -> Strategy:
    """Return a strategy of the fields that are not given: of all, or of those alone that are needed."""
    every = {name: one for name, one in _fields(model).items() if name not in given}
    needed = {name: one for name, one in every.items() if model.model_fields[name].is_required()}
    return st.fixed_dictionaries(needed) | st.fixed_dictionaries(every)


@cache
def _fields(model: type[BaseModel]) -> dict[str, Strategy]:
    schema: Schema = dict(model.__pydantic_core_schema__)
    known = {one["ref"]: one for one in schema.get("definitions", ())}
    while schema["type"] != "model-fields":
        schema = schema["schema"]
    return {name: _taken_by(field["schema"], known) for name, field in schema["fields"].items()}


@cache
def _part(model: type[BaseModel]) -> Strategy:
    """Return a strategy of a model within another."""
    return _AGREEING.get(model, partial(any_of, model))()


def _taken_by(schema: Schema, known: dict[str, Schema]) -> Strategy:
    """Return a strategy of what a schema takes: short texts, few members."""
    of = partial(_taken_by, known=known)
    match schema["type"]:
        case "model":
            found = _part(schema["cls"])
        case "definition-ref":
            found = of(known[schema["schema_ref"]])
        case "nullable":
            found = st.none() | of(schema["schema"])
        case "union":
            found = st.one_of(*map(of, schema["choices"]))
        case "tuple" if "variadic_item_index" in schema:
            found = few(of(schema["items_schema"][0]), schema.get("min_length", 0))
        case "tuple":
            found = st.tuples(*map(of, schema["items_schema"]))
        case "dict" if schema["values_schema"]["type"] == "any":
            found = json_objects
        case "dict":
            found = st.dictionaries(of(schema["keys_schema"]), of(schema["values_schema"]), max_size=2)
        case "json-or-python":
            found = json_values
        case _:
            found = of(schema["schema"]) if "schema" in schema else _scalar(schema)
    return found


def _scalar(schema: Schema) -> Strategy:
    lowest, highest = schema.get("ge", schema.get("gt")), schema.get("le", schema.get("lt"))
    match schema["type"]:
        case "bool":
            found: Strategy = st.booleans()
        case "datetime":
            found = timestamps
        case "literal":
            found = st.sampled_from(schema["expected"])
        case "int":
            found = st.integers(lowest, MAX_INTEGER if highest is None else highest)
        case "float":
            found = st.floats(
                lowest,
                highest,
                exclude_min="gt" in schema,
                exclude_max="lt" in schema,
                allow_nan=False,
                allow_infinity=False,
            )
        case "str" if "pattern" in schema:
            found = st.from_regex(schema["pattern"], fullmatch=True)
        case "str":
            found = st.text(min_size=schema.get("min_length", 0), max_size=12)
    return found


# --- models whose fields must agree with each other; ``fixed`` holds some as they are given ---


@st.composite
def calibration_maps(draw: st.DrawFn, min_knots: int = 1) -> CalibrationMap:
    size = draw(st.integers(min_knots, 6))
    knots = draw(st.lists(probabilities, min_size=size, max_size=size, unique=True))
    values = draw(st.lists(probabilities, min_size=size, max_size=size))
    return CalibrationMap(uncertainty=tuple(sorted(knots)), error_probability=tuple(sorted(values)))


def model_costs() -> st.SearchStrategy[ModelCosts]:
    by_call = any_of(ModelCosts, unit="call", prompt_small=0.0, prompt_large=0.0)
    return by_call | any_of(ModelCosts, unit="token", large_alone=None)


@st.composite
def calibration_versions(draw: st.DrawFn, /, **fixed: Any) -> CalibrationVersion:
    """Draw sealed versions of every state."""
    state = fixed.get("state") or draw(st.sampled_from(["active", "cold_start", "infeasible"]))
    explored, kept, escalated = sorted(draw(st.lists(probabilities, min_size=3, max_size=3)))
    agreeing = {
        "state": state,
        "map": calibration_maps(min_knots=0 if state == "cold_start" else 1),
        "exploration_probability": explored,
        "label_probability_kept": kept,
        "label_probability_escalated": escalated,
        "digest": "",
    }
    return draw(any_of(CalibrationVersion, **agreeing | fixed)).altered()


@st.composite
def calibration_trials(draw: st.DrawFn) -> CalibrationTrial:
    version = draw(calibration_versions())
    share = draw(st.none() | shares)
    mode = "shadow" if share is None else "canary"
    return draw(any_of(CalibrationTrial, workload=version.workload, version=version, mode=mode, share=share))


@st.composite
def commands(draw: st.DrawFn) -> Command:
    action = draw(st.sampled_from(get_args(Action)))
    needed: dict[str, Strategy] = {}
    if action in ("activate", "shadow", "canary"):
        needed["version"] = ordinals
    if action == "canary":
        needed["share"] = shares
    if action in ("believe", "compare_again"):
        needed["labeler"] = names
    return draw(any_of(Command, action=action, **needed))


@st.composite
def routed_events(draw: st.DrawFn, /, **fixed: Any) -> RoutedEvent:
    """Draw results whose answer comes from a side that ran and was valid."""
    served = draw(st.sampled_from(["small", "large"]))
    answered = {"answered_by": served, served: any_of(ModelRun, valid=True)}
    return draw(any_of(RoutedEvent, **answered | fixed))


def feedback_events() -> st.SearchStrategy[FeedbackEvent]:
    labels = any_of(FeedbackEvent, entities=st.none() | entities, verdict=None, revision=revisions)
    verdicts = st.sampled_from(["right", "wrong"])
    return labels | any_of(FeedbackEvent, entities=None, verdict=verdicts, revision=revisions)


@st.composite
def outcomes(draw: st.DrawFn, gold: int = 50) -> OutcomeCounts:
    right = draw(st.integers(0, gold))
    return OutcomeCounts(true_positives=right, predicted=right + draw(st.integers(0, 50)))


@st.composite
def labelled_examples(draw: st.DrawFn, /, **fixed: Any) -> LabelledExample:
    """Draw examples whose counts agree with each other."""
    gold = draw(st.integers(0, 50))
    counted = {"gold_count": gold, "small": outcomes(gold), "small_exact": st.booleans()}
    counted |= dict.fromkeys(("large", "large_alone"), st.none() | outcomes(gold))
    return draw(any_of(LabelledExample, **counted | fixed))


@st.composite
def version_traffics(draw: st.DrawFn, cells: int) -> VersionTraffic:
    cell = draw(st.lists(st.integers(0, cells - 1), unique=True, max_size=5).map(sorted))
    nested = [sorted(draw(st.lists(counts, min_size=3, max_size=3))) for _ in cell]
    agreeing, pairs, count = (tuple(triple[place] for triple in nested) for place in range(3))
    explored = st.tuples(*(st.integers(0, most) for most in pairs))
    parallel = {"cell": tuple(cell), "count": count, "pairs": pairs, "agreeing": agreeing, "pairs_explored": explored}
    return draw(any_of(VersionTraffic, **parallel))


@st.composite
def traffic_summaries(draw: st.DrawFn) -> TrafficSummary:
    grid = draw(any_of(GridSpec))
    versions = few(version_traffics(grid.cells), least=1)
    return draw(any_of(TrafficSummary, grid=grid, versions=versions))


_AGREEING: dict[type[BaseModel], Callable[[], Strategy]] = {
    CalibrationMap: calibration_maps,
    CalibrationTrial: calibration_trials,
    CalibrationVersion: calibration_versions,
    Command: commands,
    FeedbackEvent: feedback_events,
    LabelledExample: labelled_examples,
    ModelCosts: model_costs,
    OutcomeCounts: outcomes,
    RoutedEvent: routed_events,
    TrafficSummary: traffic_summaries,
}

entities = _taken_by(dict(TypeAdapter(Entities).core_schema), {})

#: A strategy for each public event by its class name.
EVENTS: dict[str, Strategy] = {
    name: _part(kind) for name, kind in vars(schemas).items() if isinstance(kind, type) and issubclass(kind, Event)
}
