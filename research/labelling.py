"""Keystrokes that a label takes in the form: an ideal labeler, who knows the gold entities, on recorded answers.

Every recorded query is asked about in each way in which the service asks, weighted by how often it does by default:
kept queries with the small answer alone, explored and escalated ones with both answers where they differ. A key is a
key that is pressed, whatever it types. ``tests/browser/test_page.py`` presses the same keys in a real browser.

Example: python -m research.labelling --out docs/results/labelling
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from recalibrator.labelling.form import BAR, FieldInput, field_inputs, shown_answers
from research.drift.report import provenance
from research.handoff.experiment import ESCALATED, FIELDS, entities_of
from research.handoff.models import LiveModel
from research.results_json import receipt, write_report
from schemas.entities import EntityMapping, EntityValue, equal, field_values, normalise
from schemas.label_requested import LabelRequested, RequestReason
from schemas.settings_workload import Sampling
from ucci_demo.model_server import PROMPT
from ucci_demo.model_server.checkpoint import Checkpoint
from ucci_demo.model_server.memo import Memo
from ucci_demo.recorded.traffic import OFFLINE_EXAMPLES, RecordedQuery, load_traffic

_WHEN = datetime(2026, 1, 1, tzinfo=UTC)
_SHIFTS = {"none": "clean", "typos": "typos", "new_names": "new names"}


@dataclass(frozen=True, slots=True)
class Asked:
    """A label request, what is right, and how often it is made of the query."""

    request: LabelRequested
    gold: EntityMapping
    way: str
    weight: float


def keys(request: LabelRequested, gold: EntityMapping, fields: Sequence[str] = FIELDS) -> list[str]:
    """Return the fewest keys that label a query so, by the names that browsers give to keys."""
    answers = shown_answers(request)
    for letter, answer in zip("ab", answers, strict=False):
        if equal(answer, gold, fields):
            return [letter]
    if not any(field_values(gold.get(field)) for field in fields):
        return ["n"]
    return [*_corrected(field_inputs(answers, fields), request, gold), "Enter"]


def _corrected(inputs: Sequence[FieldInput], request: LabelRequested, gold: EntityMapping) -> Iterator[str]:
    at: int | None = None
    is_strange = False
    known = {value for answer in shown_answers(request) for one in answer.values() for value in field_values(one)}
    for place, one in enumerate(inputs):
        right = gold.get(one.field)
        if field_values(_entered(one.text)) == field_values(right):
            continue
        yield from [str(place + 1)] if at is None else min(["Tab"] * (place - at), ["Escape", str(place + 1)], key=len)
        yield from _filled(one, _shown(right))
        at = place
        is_strange |= any(value not in known and value not in normalise(request.text) for value in field_values(right))
    if is_strange:
        # Asked once whether what stands nowhere is meant.
        yield "Enter"


def _filled(one: FieldInput, text: str) -> list[str]:
    """Return the fewest keys that turn a field's text, selected as it is, into another."""
    differ = (n for n, (old, new) in enumerate(zip(one.text, text, strict=False)) if old != new)
    begun = next(differ, min(len(one.text), len(text)))
    ways = [
        ["Delete"] if not text else list(text),
        ["End", *["Backspace"] * (len(one.text) - begun), *text[begun:]],
    ]
    choices = list(dict.fromkeys([*one.answers, ""]))
    for steps, choice in enumerate(choices):
        if field_values(_entered(choice)) == field_values(_entered(text)):
            ways += [["ArrowDown"] * steps, ["ArrowUp"] * (len(choices) - steps)]
    return min(ways, key=len)


def _shown(value: EntityValue | list[str]) -> str:
    return "" if value is None else value if isinstance(value, str) else f" {BAR} ".join(value)


def _entered(text: str) -> list[str]:
    return text.split(BAR)


def before(request: LabelRequested, gold: EntityMapping) -> int:
    """Return the keys that the form took which showed the served answer alone, moved by Tab and saved by Enter."""
    if not any(gold.values()):
        return 1
    inputs = field_inputs([request.entities], FIELDS)
    wrong = [place for place, one in enumerate(inputs) if field_values(one.text) != field_values(gold.get(one.field))]
    typed = sum(max(len(_shown(gold.get(inputs[place].field))), 1) for place in wrong)
    known = {value for one in request.entities.values() for value in field_values(one)}
    new = (value for place in wrong for value in field_values(gold.get(inputs[place].field)))
    is_strange = any(value not in known and value not in normalise(request.text) for value in new)
    return max(wrong, default=0) + typed + 1 + is_strange


@cache
def recorded_requests() -> tuple[Asked, ...]:
    """Return every way in which a label of a recorded query is asked for."""
    small, large = _texts("small"), _texts("large")
    clean = [query.small.uncertainty for query in _streamed() if query.shift == "none"]
    threshold = float(np.quantile([u for u in clean if u is not None], 1.0 - ESCALATED))
    return tuple(
        one
        for query in _streamed()
        for one in _asked(query, entities_of(small[query.text]), entities_of(large[query.text]), threshold)
    )


def _asked(
    query: RecordedQuery, small: Mapping[str, Any] | None, large: Mapping[str, Any] | None, threshold: float
) -> Iterator[Asked]:
    draws, u = Sampling(), query.small.uncertainty
    if large is None or small is None or u is None:
        return
    both = None if equal(small, large, FIELDS) else small
    if u > threshold:
        yield Asked(_request(query, large, both), query.gold, "escalated", draws.label_probability_escalated)
        return
    explored = draws.exploration_probability
    yield Asked(_request(query, small, None), query.gold, "kept", draws.label_probability_kept - explored)
    yield Asked(_request(query, large, both, "exploration"), query.gold, "explored", explored)


def _request(
    query: RecordedQuery,
    served: Mapping[str, Any],
    other: Mapping[str, Any] | None,
    reason: RequestReason = "monitoring",
) -> LabelRequested:
    content = {
        "query_id": f"{query.shift}:{query.text}",
        "workload": "photo-search",
        "text": query.text,
        "entities": served,
        "other_entities": other,
        "answered_by": "small",
        "reason": reason,
        "probability": 0.1,
        "requested_at": _WHEN,
    }
    return LabelRequested.model_validate(content)


def _texts(role: str) -> dict[str, str]:
    """Return one model's answers: recorded ones from the demo's memo, those to new names from the model itself."""
    memo, model, checkpoint = Memo.of(role), LiveModel(role), Checkpoint.open(role, 1)
    assert memo is not None
    prompts = {query.text: PROMPT.replace("{text}", query.text) for query in _streamed()}
    found = {text: memo.find(prompt) for text, prompt in prompts.items()}
    live = [text for text, tokens in found.items() if tokens is None]
    answers = zip(live, model.answers([prompts[text] for text in live]), strict=True)
    texts = {text: checkpoint.decode([one.token_id for one in tokens]) for text, tokens in found.items() if tokens}
    return texts | {text: answer.text for text, answer in answers}


def _streamed() -> list[RecordedQuery]:
    """Return the recorded queries but for the offline ones, which come with their labels."""
    return list(load_traffic()[OFFLINE_EXAMPLES:])


def measured(asked: Sequence[Asked]) -> dict[str, Any]:
    """Return how many keys labels of these requests take; each request weighs as often as it is made."""
    weights = np.array([one.weight for one in asked])
    counts = np.array([len(keys(one.request, one.gold)) for one in asked])
    former = np.array([before(one.request, one.gold) for one in asked])
    order = np.argsort(counts, kind="stable")
    reached = np.cumsum(weights[order]) / weights.sum()
    median, p90 = (int(counts[order][np.searchsorted(reached, share)]) for share in (0.5, 0.9))
    return {
        "requests": len(asked),
        "median": median,
        "mean": float(weights @ counts / weights.sum()),
        "p90": p90,
        "one_key": float(weights @ (counts == 1) / weights.sum()),
        "mean_before": float(weights @ former / weights.sum()),
        "one_key_before": float(weights @ (former == 1) / weights.sum()),
    }


def run() -> dict[str, Any]:
    """Measure all requests, and those of each kind of text and of query."""
    every = recorded_requests()
    rows: dict[str, Any] = {}
    for shift, name in _SHIFTS.items():
        of_shift = [one for one in every if one.request.query_id.startswith(f"{shift}:")]
        rows[f"{name}, all"] = measured(of_shift)
        for way in ("kept", "explored", "escalated"):
            rows[f"{name}, {way}"] = measured([one for one in of_shift if one.way == way])
    return {"all": measured(every), "rows": rows}


def page(results: dict[str, Any], made: dict[str, Any]) -> str:
    """Return the report."""
    rows = {"all texts": results["all"], **results["rows"]}
    lines = [
        f"| {name} | {one['requests']} | {one['median']} | {one['mean']:.1f} | {one['p90']} | {one['one_key']:.0%} "
        f"| {one['mean_before']:.1f} | {one['one_key_before']:.0%} |"
        for name, one in rows.items()
    ]
    return _PAGE.format(receipt=receipt(made), lines="\n".join(lines))


_PAGE = """\
# Keystrokes a label

{receipt}

An ideal labeler, who knows the gold entities, answers what the service asks of the recorded queries of the demo's two
models ([the form](../../labelling.md#the-form)): kept queries show the small answer, explored and escalated ones both
where they differ. Requests weigh by the default probabilities of labels; 24 % of the clean queries escalate. Every key
that is pressed counts, letters of a name that is typed included, and the key that answers "not in the text: is that
meant?"; reading does not. *Before*: the form that showed the served answer alone.

| texts, queries | requests | median | mean | p90 | one key | mean before | one key before |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
{lines}

The tail is names that neither model has found and that people type in full: their canonical form, such as *Canon EOS 5D
Mark IV*, is longer than what stands in the query. `tests/browser/test_page.py` presses such keys in Chromium and finds
the labels on the topic.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and write or print the report; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m research.labelling", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="folder of README.md and results.json")
    given = parser.parse_args(argv)
    made = provenance()
    made["command"] = "python -m research.labelling" + (f" --out {given.out}" if given.out else "")
    results = run()
    print(page(results, made))
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        write_report(given.out, results, made, page)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
