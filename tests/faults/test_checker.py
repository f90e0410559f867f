"""The checker is checked: records that keep every promise, then each promise broken, one at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

import pytest
import rfc8785

from tests.faults.checker import Area, Finding, Harm, check
from tests.faults.evidence import Answer, Evidence, Kept, Place

QUERIES = 6
Records = dict[Place, Kept]
P = ParamSpec("P")


def answer(model: str, text: str) -> Answer:
    number = int(text.rpartition(" ")[2])
    return Answer({"camera": f"c{number}", "lens": "l" if model == "large" or number % 2 else "wrong"}, number / 10)


def keep(
    records: Records, topic: str, key: str, document: dict[str, Any] | None, partition: int = 0, **headers: str
) -> Place:
    offset = sum((place.topic, place.partition) == (topic, partition) for place in records)
    place = Place(topic, partition, offset)
    value = None if document is None else json.dumps(document).encode()
    records[place] = Kept(place, key, value, 1_000 + offset, headers)
    return place


def version(number: int, **changes: Any) -> dict[str, Any]:
    content = {"workload": "photo", "version": number, "uncertainty_threshold": 0.35, **changes}
    return {**content, "digest": sha256(rfc8785.dumps(content)).hexdigest()}


def routed(number: int) -> dict[str, Any]:
    text, above = f"photo {number}", number / 10 > 0.35
    runs = {side: {"valid": True, **answer(side, text)._asdict()} for side in ("small", "large")}
    served = "large" if above else "small"
    return {
        "query_id": f"q-{number}",
        "text": text,
        "entities": runs[served]["entities"],
        "answered_by": served,
        "decision": {
            "escalated": above,
            "reason": "threshold" if above else "kept",
            "uncertainty": number / 10,
            "calibration_version": 1,
        },
        "small": runs["small"],
        "large": runs["large"] if above else None,
        "label": {"requested": True},
    }


def label(number: int, revision: int = 1, **changes: Any) -> dict[str, Any]:
    gold = {"camera": f"c{number}", "lens": "l"}
    return {"query_id": f"q-{number}", "entities": gold, "feedback_id": f"q-{number}/{revision}", **changes}


def example(number: int, revision: int = 1, **changes: Any) -> dict[str, Any]:
    result = routed(number)
    is_right = result["small"]["entities"]["lens"] == "l"
    return {
        "kind": "labelled",
        "query_id": f"q-{number}",
        "revision": revision,
        "retracted": False,
        "gold_count": 2,
        "small": {"true_positives": 2 if is_right else 1, "predicted": 2},
        "large": None if result["large"] is None else {"true_positives": 2, "predicted": 2},
        **changes,
    }


def traffic(*numbers: int) -> dict[str, Any]:
    above = sum(routed(number)["decision"]["escalated"] for number in numbers)
    zero = dict.fromkeys(("explored", "degraded"), 0)
    part = {"calibration_version": 1, "queries": len(numbers), "escalated": above, "large_calls": above}
    return {"kind": "traffic", "versions": [part | zero | {"labels_requested": len(numbers)}]}


def sound() -> Evidence:
    """Six queries, one of them a dead letter; labels repeated, corrected and withdrawn; two versions."""
    records: Records = {}
    for number in range(QUERIES):
        query = {"query_id": f"q-{number}", "text": f"photo {number}"}
        source = keep(records, "queries", f"q-{number}", query, number % 2)
        if number == QUERIES - 1:
            where = {"dlq.topic": "t.queries", "dlq.partition": str(source.partition), "dlq.offset": str(source.offset)}
            keep(records, "dead-letters", f"q-{number}", query, number % 2, **where, **{"dlq.stage": "route"})
        else:
            keep(records, "results", f"q-{number}", routed(number), number % 2)
    said = (label(0), label(0), label(1), label(1, 2, entities={"camera": "c1"}), label(2), label(2, 2, retracted=True))
    for event in said:
        keep(records, "feedback", event["query_id"], event)
    corrected = example(1, 2, gold_count=1, small={"true_positives": 1, "predicted": 2})
    joined = (example(0), example(1), corrected, example(2), example(2, 2, retracted=True))
    for observation in (traffic(0, 1, 2), *joined, traffic(3, 4)):
        keep(records, "observations", "photo", observation)
    for number in (1, 3):
        keep(records, "calibration", "photo", version(number))
        keep(records, "calibration-history", f"photo:{number}", version(number))
    keep(records, "calibration-history", "photo:0", None)
    texts = {f"q-{number}": f"photo {number}" for number in range(QUERIES)}
    labels = {"q-0/1", "q-1/1", "q-1/2", "q-2/1", "q-2/2"}
    return Evidence(records, texts, set(texts), labels, answer)


def test_sound_records_pass() -> None:
    """Dead letters, repetitions, corrections, withdrawals and gaps between versions break no promise."""
    assert check(sound()) == []


def later(change: Callable[Concatenate[Evidence, P], None]) -> Callable[P, Callable[[Evidence], None]]:
    """Return what takes a change's arguments, and returns what makes it."""
    return lambda *arguments, **more: lambda evidence: change(evidence, *arguments, **more)


@later
def dropped(evidence: Evidence, topic: str, offset: int = 0, partition: int = 0) -> None:
    """Take a record away."""
    del evidence.records[Place(topic, partition, offset)]  # type: ignore[attr-defined]


@later
def doubled(evidence: Evidence, topic: str, offset: int = 0) -> None:
    """Write a record a second time."""
    _put(evidence, replace(evidence.records[Place(topic, 0, offset)], place=_end(evidence, topic)))


@later
def altered(evidence: Evidence, topic: str, offset: int, *path: str, to: Any) -> None:
    """Change one member of a record."""
    found = evidence.records[Place(topic, 0, offset)]
    document = inner = json.loads(found.value or b"")
    for name in path[:-1]:
        inner = inner[int(name) if isinstance(inner, list) else name]
    inner[path[-1]] = to
    _put(evidence, replace(found, value=json.dumps(document).encode()))


@later
def swapped(evidence: Evidence, topic: str, first: int, second: int) -> None:
    """Let two records change places."""
    one, other = evidence.records[Place(topic, 0, first)], evidence.records[Place(topic, 0, second)]
    _put(evidence, replace(one, place=other.place))
    _put(evidence, replace(other, place=one.place))


@later
def added(evidence: Evidence, topic: str, key: str, document: dict[str, Any], partition: int = 0) -> None:
    """Write a record that nobody should have written."""
    _put(evidence, Kept(_end(evidence, topic, partition), key, json.dumps(document).encode(), 2_000))


def moved(evidence: Evidence) -> None:
    """Let a result stand on another partition than its query."""
    found = evidence.records[Place("results", 0, 0)]
    dropped("results")(evidence)
    _put(evidence, replace(found, place=_end(evidence, "results", 1)))


def too_early(evidence: Evidence) -> None:
    """Let a result be older than its query."""
    found = evidence.records[Place("queries", 0, 0)]
    _put(evidence, replace(found, timestamp_ms=10_000))


def other_letter(evidence: Evidence) -> None:
    """Let a dead letter hold other bytes than its source."""
    _put(evidence, replace(next(evidence.of("dead-letters")), value=b"other bytes"))


def second_letter(evidence: Evidence) -> None:
    """Write a dead letter a second time."""
    _put(evidence, replace(next(evidence.of("dead-letters")), place=_end(evidence, "dead-letters", 1)))


def _put(evidence: Evidence, record: Kept) -> None:
    assert isinstance(evidence.records, dict)
    evidence.records[record.place] = record


def _end(evidence: Evidence, topic: str, partition: int = 0) -> Place:
    used = [place.offset for place in evidence.records if (place.topic, place.partition) == (topic, partition)]
    return Place(topic, partition, max(used, default=-1) + 1)


PLANTED: dict[str, tuple[Callable[[Evidence], None], Area, Harm]] = {
    "a result is missing": (dropped("results"), "queries", "lost"),
    "a dead letter is missing": (dropped("dead-letters", partition=1), "queries", "lost"),
    "an acknowledged query is not there": (dropped("queries"), "queries", "lost"),
    "a query is there twice": (doubled("queries"), "queries", "doubled"),
    "a result is there twice": (doubled("results"), "queries", "doubled"),
    "a result beside a dead letter": (added("results", "q-5", routed(5), 1), "queries", "doubled"),
    "a result of no query": (added("results", "q-99", routed(9)), "queries", "altered"),
    "another entity": (altered("results", 0, "entities", "camera", to="other"), "queries", "altered"),
    "another answer of the model": (altered("results", 0, "small", "entities", "lens", to="x"), "queries", "altered"),
    "another u": (altered("results", 0, "small", "uncertainty", to=0.05), "queries", "altered"),
    "another text": (altered("results", 0, "text", to="photo 3"), "queries", "altered"),
    "an unknown version": (altered("results", 0, "decision", "calibration_version", to=2), "queries", "altered"),
    "against its threshold": (altered("results", 0, "decision", "uncertainty", to=0.9), "queries", "altered"),
    "a dead letter of other bytes": (other_letter, "queries", "altered"),
    "a dead letter is there twice": (second_letter, "queries", "doubled"),
    "on another partition": (moved, "queries", "reordered"),
    "answered before it was asked": (too_early, "queries", "reordered"),
    "feedback is missing": (dropped("feedback", 2), "labels", "lost"),
    "an example is missing": (dropped("observations", 1), "labels", "lost"),
    "a correction is missing": (dropped("observations", 3), "labels", "lost"),
    "a withdrawal is missing": (dropped("observations", 5), "labels", "lost"),
    "an example is there twice": (doubled("observations", 1), "labels", "doubled"),
    "a repetition counts anew": (added("observations", "photo", example(0, 2)), "labels", "doubled"),
    "an example of no result": (added("observations", "photo", example(5)), "labels", "altered"),
    "another count": (altered("observations", 1, "gold_count", to=1), "labels", "altered"),
    "a correction before its label": (swapped("observations", 2, 3), "labels", "reordered"),
    "a summary is missing": (dropped("observations", 0), "labels", "lost"),
    "a summary is there twice": (doubled("observations", 0), "labels", "doubled"),
    "a summary of another version": (
        altered("observations", 0, "versions", "0", "calibration_version", to=3),
        "labels",
        "lost",
    ),
    "one number, two contents": (
        added("calibration", "photo", version(3, uncertainty_threshold=0.4)),
        "versions",
        "contradictory",
    ),
    "a version is there twice": (doubled("calibration", 1), "versions", "doubled"),
    "numbers that fall": (swapped("calibration", 0, 1), "versions", "reordered"),
    "a version without history": (dropped("calibration-history", 0), "versions", "lost"),
    "a damaged version": (altered("calibration", 1, "uncertainty_threshold", to=0.4), "versions", "altered"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name: str) -> None:
    """Each fault is found as what it is, in the area whose doing it is."""
    plant, area, harm = PLANTED[name]
    evidence = sound()
    plant(evidence)
    found = {(finding.area, finding.harm) for finding in check(evidence)}
    assert (area, harm) in found


def test_what_retention_took_is_excused_and_nothing_else() -> None:
    """A query that the topic no longer held need not be answered; another one still must."""
    evidence = sound()
    labels = (
        place for place, one in evidence.records.items() if place.topic == "feedback" and one.key in {"q-0", "q-2"}
    )
    gone = [Place("results", 0, 0), Place("results", 0, 1), *labels]
    for place in gone:
        dropped(place.topic, place.offset)(evidence)
    found = check(replace(evidence, excused={Place("queries", 0, 0)}))
    lost = [finding for finding in found if finding.area == "queries"]
    assert lost == [Finding("queries", "lost", "q-2 has neither result nor dead letter")]


def test_the_checker_knows_nothing_of_the_services() -> None:
    """It imports neither service nor what they share, so that no error of theirs is its own."""
    text = "".join((Path(__file__).parent / name).read_text(encoding="utf-8") for name in ("checker.py", "evidence.py"))
    imported = set(re.findall(r"^\s*(?:from|import) (\w+)", text, re.MULTILINE))
    assert "rfc8785" in imported
    assert not imported & {"schemas", "ucci_runtime", "stream_router", "recalibrator", "ucci_stream"}
