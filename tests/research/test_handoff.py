"""What the handoff benchmark counts: tokens, pairs and answers that had to be asked for again."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from research.handoff import experiment, offline
from research.handoff.models import Answer
from research.handoff.report import write
from stream_router.ports import TokenMark
from ucci_demo.model_server import PROMPT
from ucci_demo.recorded.traffic import HANDED_OVER_COLUMNS, RecordedQuery, load_traffic, with_handoff
from ucci_stream.demo.scenario import offline_set

QUERIES = 8
MADE = {"command": "python -m research.handoff", "commit": "0", "machine": "m", "python": "3", "day": "2026-01-31"}


def said(text: str, unsure_at: int | None = None) -> Answer:
    """Return an answer of a token a character."""
    marks = tuple(TokenMark(place, 0.0 if place == unsure_at else 1.0) for place in range(len(text)))
    return Answer(text, len(text), 10, is_whole=True, marks=marks)


class Scripted:
    """A model that answers each prompt as a function of its query and of what is begun."""

    def __init__(self, answer: Callable[[RecordedQuery, str], Answer]) -> None:
        self._answer = answer
        self._queries = {PROMPT.replace("{text}", query.text): query for query in load_traffic()}

    def answers(self, prompts: Sequence[str]) -> list[Answer]:
        parts = [prompt.partition("\nOutput:") for prompt in prompts]
        return [self._answer(self._queries[asked + end], begun) for asked, end, begun in parts]


def right(query: RecordedQuery) -> str:
    return json.dumps(query.gold)


def measured(monkeypatch: pytest.MonkeyPatch, goes_on: Callable[[str, str], str]) -> dict[str, object]:
    """Measure one margin by token; the small model is right, and sure of all but its last field."""
    small = Scripted(lambda query, _: said(right(query), right(query).rindex('"focal_length"')))
    large = Scripted(lambda query, begun: said(goes_on(right(query), begun) if begun else right(query)))
    models = {"small": small, "large": large}
    changes = {"LiveModel": models.__getitem__, "MARGINS": (0.9,), "GRANULARITIES": ("token",), "ROUNDS": 20}
    for name, value in changes.items():
        monkeypatch.setattr(experiment, name, value)
    results = experiment.run(QUERIES, seed=1)
    (row,) = results["parts"][0]["rows"]
    return dict(row) | {"parts": results}


def test_a_model_that_goes_on_saves_what_it_was_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Everything up to the last field; the answers stay right, and the page can be written."""
    row = measured(monkeypatch, lambda whole, begun: whole[len(begun) :])
    assert (row["same_text"], row["asked_again"], row["micro_f1_change"], row["micro_f1"]) == (1.0, 0.0, 0.0, 1.0)
    assert 0.5 < row["tokens_saved"] < 1.0  # type: ignore[operator]
    write(row["parts"], MADE, tmp_path)  # type: ignore[arg-type]
    assert "## Texts with typos" in (tmp_path / "README.md").read_text(encoding="utf-8")


def test_an_answer_that_is_none_is_paid_for_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The large model alone answers instead, so that nothing is lost but tokens."""
    row = measured(monkeypatch, lambda _whole, _begun: "no")
    assert (row["asked_again"], row["micro_f1"]) == (1.0, 1.0)
    assert row["tokens_saved"] < 0.0  # type: ignore[operator]


def test_the_demo_s_offline_answers_are_what_its_models_say() -> None:
    """A few of what ``handed_over.npz`` holds, asked for again; some differ from those of the large model alone."""
    alone = offline_set(load_traffic())
    behind = with_handoff(alone)
    differing = [place for place, query in enumerate(alone) if query.agree != behind[place].agree]
    places = [*range(QUERIES), *differing[:2]]
    rows = offline.rows_of([alone[place] for place in places])
    for place, row in zip(places, rows, strict=True):
        recorded = {name: getattr(behind[place].large, name) for name in HANDED_OVER_COLUMNS}
        assert row == {**recorded, "agree": behind[place].agree}
