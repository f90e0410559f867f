"""The independent judge: it sees committed records alone, and knows the promises but nothing of how they are kept.

It imports neither service and reads plain JSON. Each rule returns findings; none is the proof that a fault did no harm
that the topics show. What it cannot see (a reader without ``read_committed``, calls made twice) it does not judge.

Areas: ``queries`` (the router), ``labels`` (the join), ``versions`` (the fit).
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import combinations, pairwise, permutations
from typing import Any, Literal, NamedTuple

import rfc8785

from tests.faults.evidence import Entities, Evidence, Kept, Place

Harm = Literal["lost", "doubled", "altered", "reordered", "contradictory"]
Area = Literal["queries", "labels", "versions"]
_CLOSE = 1e-9
#: How far the broker's clock may differ from the senders' on one machine, both read in whole milliseconds.
_CLOCK_MS = 1_000


class Finding(NamedTuple):
    area: Area
    harm: Harm
    what: str


def check(evidence: Evidence) -> list[Finding]:
    """Return every promise that the records break; an empty list where all are kept."""
    rules = (_outcomes, _results, _dead_letters, _acknowledged_labels, _examples, _traffic, _versions)
    return [finding for rule in rules for finding in rule(evidence)]


# --- queries ---


def _outcomes(evidence: Evidence) -> Iterator[Finding]:
    """Each acknowledged query has one result or one dead letter."""
    results, letters = evidence.by_key("results"), evidence.by_key("dead-letters")
    asked, excused = evidence.by_key("queries"), set(evidence.excused)
    for query_id in evidence.acknowledged:
        at = asked.get(query_id, [])
        if not at:
            yield Finding("queries", "lost", f"{query_id} was acknowledged and is not on the topic")
        elif len(at) > 1:
            yield Finding("queries", "doubled", f"{query_id} is on the topic {len(at)} times, sent once")
    for query_id, records in asked.items():
        count = len(results.get(query_id, ()))
        count += sum(letter.headers.get("dlq.stage") == "route" for letter in letters.get(query_id, ()))
        if count == 0 and not all(record.place in excused for record in records):
            yield Finding("queries", "lost", f"{query_id} has neither result nor dead letter")
        elif count > len(records):
            yield Finding("queries", "doubled", f"{query_id} has {count} results and dead letters")
    for query_id in results.keys() - asked.keys():
        yield Finding("queries", "altered", f"a result of {query_id}, which nobody asked")


def _results(evidence: Evidence) -> Iterator[Finding]:
    """Each result says what the models said, stands where its key belongs, and follows from a published version."""
    asked, versions = evidence.by_key("queries"), _published(evidence)
    for record in evidence.of("results"):
        query = asked.get(record.key, [None])[0]
        if query is None:
            continue
        routed = _json(record)
        if routed["query_id"] != record.key or routed["text"] != evidence.queries.get(record.key):
            yield Finding("queries", "altered", f"{record.key}: another id or text in its result")
            continue
        if record.place.partition != query.place.partition and not evidence.has_grown:
            yield Finding("queries", "reordered", f"{record.key}: asked on one partition, answered on another")
        if record.timestamp_ms < query.timestamp_ms - _CLOCK_MS:
            yield Finding("queries", "reordered", f"{record.key}: answered before it was asked")
        for fault in _answer_faults(routed, evidence):
            yield Finding("queries", "altered", f"{record.key}: {fault}")
        for fault in _decision_faults(routed["decision"], versions):
            yield Finding("queries", "altered", f"{record.key}: {fault}")


def _answer_faults(routed: Mapping[str, Any], evidence: Evidence) -> Iterator[str]:
    for side in ("small", "large"):
        run = routed[side]
        if run is None or not run["valid"]:
            continue
        said = evidence.answer(side, routed["text"])
        if _stated(run["entities"]) != _stated(said.entities):
            yield f"the {side} model did not say {run['entities']}"
        u = run["uncertainty"]
        if u is not None and not math.isclose(u, said.uncertainty, rel_tol=0.0, abs_tol=_CLOSE):
            yield f"u of the {side} model is {said.uncertainty}, not {u}"
    served = routed[routed["answered_by"]]
    if served is None or not served["valid"] or _stated(served["entities"]) != _stated(routed["entities"]):
        yield f"what is served is not what the {routed['answered_by']} model said"


def _decision_faults(decision: Mapping[str, Any], versions: Mapping[int, Mapping[str, Any]]) -> Iterator[str]:
    number, uncertainty, reason = decision["calibration_version"], decision["uncertainty"], decision["reason"]
    if number is None:
        return
    if number not in versions:
        yield f"decided by version {number}, which was never published"
    elif uncertainty is not None and reason in {"kept", "threshold", "exploration"}:
        is_above = uncertainty > versions[number]["uncertainty_threshold"]
        if is_above != (reason == "threshold") or decision["escalated"] != (reason != "kept"):
            yield f"u {uncertainty} is {reason}, against the threshold of version {number}"


def _dead_letters(evidence: Evidence) -> Iterator[Finding]:
    """A dead letter carries the bytes of its source, once for each stage."""
    seen: set[tuple[str, Place]] = set()
    for letter in evidence.of("dead-letters"):
        stage = letter.headers.get("dlq.stage", "")
        topic = letter.headers.get("dlq.topic", "").rpartition(".")[2]
        place = Place(topic, int(letter.headers.get("dlq.partition", -1)), int(letter.headers.get("dlq.offset", -1)))
        area: Area = "queries" if stage == "route" else "labels" if stage == "join" else "versions"
        if (stage, place) in seen:
            yield Finding(area, "doubled", f"dead letters of {place}")
        seen.add((stage, place))
        source = evidence.records.get(place)
        if source is not None and letter.value != source.value:
            yield Finding(area, "altered", f"the dead letter of {place} holds other bytes")


# --- labels ---


class _Contribution(NamedTuple):
    """What a query's label says after so many of its feedback events."""

    retracted: bool
    gold_count: int
    small: tuple[int, int] | None
    large: tuple[int, int] | None
    #: Whether the last of these events says something else than those before: an overtaken one says nothing.
    is_change: bool = True

    @property
    def counts(self) -> tuple[Any, ...]:
        """What it says, whenever it was said."""
        return self[:-1]


def _acknowledged_labels(evidence: Evidence) -> Iterator[Finding]:
    present = {_json(record)["feedback_id"] for record in evidence.of("feedback")}
    for feedback_id in set(evidence.labels) - present:
        yield Finding("labels", "lost", f"feedback {feedback_id} was acknowledged and is not on the topic")


def _examples(evidence: Evidence) -> Iterator[Finding]:
    """Each query's examples follow its feedback, once for each change, and end in what its labelers said last."""
    results = {record.key: record for record in evidence.of("results")}
    feedback, examples = _feedback_by_query(evidence), _examples_by_query(evidence)
    for query_id in sorted(feedback.keys() | examples.keys()):
        result, records = results.get(query_id), feedback.get(query_id, [])
        found = examples.get(query_id, [])
        if result is None:
            if found:
                yield Finding("labels", "altered", f"an example of {query_id}, which has no result")
            continue
        is_excused = any(record.place in evidence.excused for record in (result, *records))
        orders = [_states(_json(result), events) for events in _orders(records)]
        faults = [list(_order_faults(query_id, found, states, is_excused=is_excused)) for states in orders]
        yield from min(faults, key=len)


def _order_faults(
    query_id: str, found: Sequence[Mapping[str, Any]], states: Sequence[_Contribution], *, is_excused: bool
) -> Iterator[Finding]:
    """Yield what is wrong with a query's examples if its feedback was taken in one order."""
    if found:
        yield from _example_faults(query_id, found, states)
    if not states or is_excused:
        return
    last = max(found, key=lambda one: int(one["revision"]), default=None)
    stands = last is not None and not last["retracted"]
    if stands == states[-1].retracted or (last and stands and not _says_last(last, states)):
        yield Finding("labels", "lost", f"{query_id}: its last label is not the one that counts")


def _says_last(example: Mapping[str, Any], states: Sequence[_Contribution]) -> bool:
    """Return whether no feedback after an example changed what it says."""
    changed_last = max(number for number, state in enumerate(states, 1) if state.is_change)
    return changed_last <= int(example["revision"]) <= len(states)


def _example_faults(
    query_id: str, found: Sequence[Mapping[str, Any]], states: Sequence[_Contribution]
) -> Iterator[Finding]:
    revisions = [int(one["revision"]) for one in found]
    for revision, count in Counter(revisions).items():
        if count > 1 or revision > len(states):
            yield Finding("labels", "doubled", f"{query_id}: revision {revision}, {count} times, of {len(states)}")
    if any(later < earlier for earlier, later in pairwise(revisions)):
        yield Finding("labels", "reordered", f"{query_id}: revisions {revisions}")
    for one, revision in zip(found, revisions, strict=True):
        if revision <= len(states) and _contribution(one).counts != states[revision - 1].counts:
            yield Finding("labels", "altered", f"{query_id}: revision {revision} does not say what its label says")


def _examples_by_query(evidence: Evidence) -> Mapping[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for record in evidence.of("observations"):
        observation = _json(record)
        if observation["kind"] == "labelled":
            found[observation["query_id"]].append(observation)
    return found


def _feedback_by_query(evidence: Evidence) -> Mapping[str, list[Kept]]:
    """Return each query's feedback, wherever its producer put it, in the order in which the broker took it."""
    found: dict[str, list[Kept]] = defaultdict(list)
    for record in evidence.of("feedback"):
        found[_json(record)["query_id"]].append(record)
    # Within a partition the offset tells; the sort keeps it.
    return {query_id: sorted(records, key=lambda record: record.timestamp_ms) for query_id, records in found.items()}


def _orders(records: Sequence[Kept]) -> list[tuple[Mapping[str, Any], ...]]:
    """Return a query's feedback without repetitions, in each order in which it may be read.

    Within a partition it is read as it was written; between partitions nothing is promised.
    """
    first: dict[str, Kept] = {}
    for record in records:
        first.setdefault(_json(record)["feedback_id"], record)
    return [tuple(map(_json, order)) for order in permutations(first.values()) if _is_as_written(order)]


def _is_as_written(order: Sequence[Kept]) -> bool:
    """Return whether records of one partition come in the order of their offsets."""
    places = [record.place for record in order]
    return not any(one[:2] == other[:2] and one > other for one, other in combinations(places, 2))


def _states(routed: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> list[_Contribution]:
    """Return what counts after each event of one labeler: what the highest revision until then says."""
    found: list[_Contribution] = []
    highest = 0
    for event in events:
        if event.get("revision", 1) < highest:
            found.append(found[-1]._replace(is_change=False))
            continue
        highest, gold = event.get("revision", 1), event["entities"]
        if event.get("retracted") or gold is None:
            # A withdrawal keeps the numbers of what it takes out; only that it does counts.
            found.append(_Contribution(True, 0, None, None))
        else:
            small, large = (_counts(routed[side], gold) for side in ("small", "large"))
            found.append(_Contribution(False, len(_stated(gold)), small, large))
    return found


def _contribution(example: Mapping[str, Any]) -> _Contribution:
    if example["retracted"]:
        return _Contribution(True, 0, None, None)
    sides = (example["small"], example["large"])
    small, large = (side and (int(side["true_positives"]), int(side["predicted"])) for side in sides)
    return _Contribution(False, int(example["gold_count"]), small, large)


def _counts(run: Mapping[str, Any] | None, gold: Entities) -> tuple[int, int] | None:
    if run is None:
        return None
    said = _stated(run["entities"] if run["valid"] else {})
    return len(said.items() & _stated(gold).items()), len(said)


def _stated(entities: Entities) -> dict[str, str]:
    return {name: value for name, value in entities.items() if value is not None}


def _traffic(evidence: Evidence) -> Iterator[Finding]:
    """The summaries of each version add up to its results."""
    excused = set(evidence.excused)
    least: Counter[tuple[int | None, str]] = Counter()
    most: Counter[tuple[int | None, str]] = Counter()
    for record in evidence.of("results"):
        counts = _traffic_of(_json(record))
        most.update(counts)
        if record.place not in excused:
            least.update(counts)
    summed: Counter[tuple[int | None, str]] = Counter()
    for record in evidence.of("observations"):
        observation = _json(record)
        for part in observation["versions"] if observation["kind"] == "traffic" else ():
            version = part["calibration_version"]
            summed.update({(version, name): part[name] for name in _SUMMED})
    for key in sorted(least.keys() | most.keys() | summed.keys(), key=repr):
        if summed[key] < least[key]:
            yield Finding("labels", "lost", f"traffic of {key}: {summed[key]} of {least[key]}")
        elif summed[key] > most[key]:
            yield Finding("labels", "doubled", f"traffic of {key}: {summed[key]} of {most[key]}")


_SUMMED = ("queries", "escalated", "explored", "degraded", "labels_requested", "large_calls")


def _traffic_of(routed: Mapping[str, Any]) -> dict[tuple[int | None, str], int]:
    decision = routed["decision"]
    counts = (
        1,
        decision["escalated"],
        decision["reason"] == "exploration",
        decision["reason"] == "degraded",
        routed["label"]["requested"],
        routed["large"] is not None,
    )
    return {(decision["calibration_version"], name): int(count) for name, count in zip(_SUMMED, counts, strict=True)}


# --- versions ---


def _published(evidence: Evidence) -> dict[int, Mapping[str, Any]]:
    found = (_json(record) for record in evidence.of("calibration") if record.value is not None)
    return {int(version["version"]): version for version in found}


def _versions(evidence: Evidence) -> Iterator[Finding]:
    """Numbers only rise, each names one content once, and the history holds what took force."""
    published, history = list(_written(evidence, "calibration")), list(_written(evidence, "calibration-history"))
    contents: dict[_Name, set[bytes]] = defaultdict(set)
    for name, record in [*published, *history]:
        assert record.value is not None
        contents[name].add(record.value)
        if _json(record)["digest"] != _digest(_json(record)):
            yield Finding("versions", "altered", f"version {name}: the digest does not fit")
    last: dict[str, int] = {}
    for name, _ in published:
        if name.number < last.get(name.workload, 0):
            yield Finding("versions", "reordered", f"version {name} after {last[name.workload]}")
        last[name.workload] = name.number
    times = Counter(name for name, _ in published), Counter(name for name, _ in history)
    for name, found in contents.items():
        if len(found) > 1:
            yield Finding("versions", "contradictory", f"version {name} has {len(found)} contents")
        if max(count[name] for count in times) > 1:
            yield Finding("versions", "doubled", f"version {name} was published more than once")
        if not times[1][name]:
            yield Finding("versions", "lost", f"version {name} is missing in the history")


class _Name(NamedTuple):
    workload: str
    number: int


def _written(evidence: Evidence, topic: str) -> Iterator[tuple[_Name, Kept]]:
    """Yield the versions on a topic, tombstones aside."""
    for record in evidence.of(topic):
        if record.value is not None:
            version = _json(record)
            yield _Name(str(version["workload"]), int(version["version"])), record


def _digest(version: Mapping[str, Any]) -> str:
    content = {name: value for name, value in version.items() if name != "digest"}
    return sha256(rfc8785.dumps(content)).hexdigest()


def _json(record: Kept) -> dict[str, Any]:
    assert record.value is not None, f"{record.place} has no value"
    found: dict[str, Any] = json.loads(record.value)
    return found
