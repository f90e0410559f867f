"""Why a query was answered as it was, and what became of its label: from the records that name it. Pure.

What the fit alone knows, such as which labels an audit has made count for less, is not in the topics one by one; where
that decides, the explanation says so rather than guess.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

from pydantic_core import to_json

from schemas.basis import is_of_basis
from schemas.calibration import CalibrationVersion
from schemas.draws import drawn_as, mark_of, uniform
from schemas.event import Event, rfc3339
from schemas.feedback import FeedbackEvent
from schemas.labelled import LabelledExample
from schemas.routed import RoutedEvent
from schemas.status import WorkloadStatus
from ucci_stream.operate.kafka_letters import Letter

#: Whether a query's label counts in the estimates, and why.
Verdict = tuple[Literal["yes", "no", "not yet", "unknown"], str]

#: The fields shown of feedback and of a joined label.
_SAID = ("labeler", "source", "labelled_at", "arrived_at", "place", "revision", "retracted", "entities", "verdict")
_JOINED = ("revision", "labeler", "labelled_at", "retracted", "trusted", "disputed")


class Said(NamedTuple):
    """What a labeler has said, when the broker got it, where that is known, and where it lies."""

    event: FeedbackEvent
    arrived_at: datetime | None = None
    #: ``topic/partition/offset``.
    place: str = ""


class Forwarded(NamedTuple):
    """A record that lay in another partition than its query's; its place, and where the join has written it again."""

    #: ``label`` or ``result``.
    what: str
    #: Both as ``topic/partition/offset``.
    sent: str
    place: str


class Traces(NamedTuple):
    """The records that name a query."""

    #: In the order of their topic; the first one is what the join keeps.
    results: Sequence[RoutedEvent] = ()

    feedback: Sequence[Said] = ()
    examples: Sequence[LabelledExample] = ()
    #: Whether people are asked for its label at this moment.
    is_open: bool = False
    #: That decided, where the history still has it.
    version: CalibrationVersion | None = None

    status: WorkloadStatus | None = None
    #: Records of this query that were set aside.
    letters: Sequence[Letter] = ()
    forwarded: Sequence[Forwarded] = ()
    #: When a label without a result becomes a dead letter.
    kept_until: datetime | None = None
    #: Of results, where this query has none.
    similar_ids: Sequence[str] = ()

    def refusal(self, said: Said) -> Letter | None:
        """Return the letter of a label that was set aside."""
        return next((one for one in self.letters if said.place and one.source == said.place), None)

    @property
    def taken(self) -> Sequence[Said]:
        """The labels that were not set aside."""
        return [said for said in self.feedback if self.refusal(said) is None]


def explanation(
    query_id: str, traces: Traces, signal: str, mark: str | None = None, key: bytes | None = None
) -> dict[str, Any]:
    """Return everything about one query as JSON values. ``key``: of the routers' draws, by which alone they repeat."""
    found: dict[str, Any] = {
        "query_id": query_id,
        "results": len(traces.results),
        "dead_letters": [letter.document(whole=False) for letter in traces.letters],
        "forwarded": [one._asdict() for one in traces.forwarded],
    }
    if not traces.results:
        return found | ({"label": _label(traces, signal, mark)} if traces.feedback else {})
    routed = traces.results[0]
    found["result"] = json.loads(routed.to_json())
    draws_by = drawn_as(query_id, key) if routed.drawn_with == mark_of(key) else None
    found["decision"] = _decision(routed, traces.version, draws_by)
    found["draws"] = _draws(routed, traces.version, draws_by)
    found["label"] = {
        "requested": routed.label.requested,
        "reason": routed.label.reason,
        "probability": routed.label.probability,
        "is_open": traces.is_open,
    } | _label(traces, signal, mark)
    return found


def _label(traces: Traces, signal: str, mark: str | None) -> dict[str, Any]:
    """Return what labelers have said, and what became of it; ``waits`` while a result is missing."""
    counted, why = verdict_of(traces, signal, mark)
    label: dict[str, Any] = {
        "feedback": [
            _told(said.event, _SAID, arrived_at=said.arrived_at and rfc3339(said.arrived_at), place=said.place or None)
            for said in traces.feedback
        ],
        "joined": [_told(example, _JOINED) for example in traces.examples],
        "counted": counted,
        "why": why,
        "waits": None,
    }
    if not traces.results and counted == "not yet":
        until = traces.kept_until
        label["waits"] = {"until": until and rfc3339(until), "similar_ids": list(traces.similar_ids)}
    return label


def _decision(routed: RoutedEvent, version: CalibrationVersion | None, draws_by: str | None) -> dict[str, Any]:
    decision = routed.decision
    made: dict[str, Any] = {
        "escalated": decision.escalated,
        "reason": decision.reason,
        "answered_by": routed.answered_by,
        "uncertainty": decision.uncertainty,
        "error_probability": decision.error_probability,
        "calibration_version": decision.calibration_version,
        "uncertainty_threshold": version and version.uncertainty_threshold,
        "threshold": decision.threshold,
        "version_made_at": version and rfc3339(version.created_at),
        "version_trigger": version and version.evidence.trigger,
        "trial": decision.trial and decision.trial.model_dump(mode="json"),
        "repeatable": None,
    }
    if version is not None and draws_by is not None and decision.reason not in ("degraded", "large_only"):
        again = version.decide(decision.uncertainty, draws_by)
        made["repeatable"] = (again.escalated, again.reason) == (decision.escalated, decision.reason)
    return made


def _draws(routed: RoutedEvent, version: CalibrationVersion | None, draws_by: str | None) -> dict[str, Any]:
    """Return the number drawn for this query and what it was compared with; exploration lies inside the label draw."""
    return {
        "number": None if draws_by is None else uniform(draws_by, routed.workload),
        "exploration_probability": version and version.exploration_probability,
        "explored": routed.decision.reason == "exploration",
        "label_probability": routed.label.probability,
        "label_requested": routed.label.requested,
        "large_probability": routed.decision.large_probability,
    }


def _told(event: Event, names: Sequence[str], **more: object) -> dict[str, Any]:
    told = event.model_dump(mode="json") | more
    return {name: told.get(name) for name in names}


def lines(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return an explanation in words: what each line is about, and the line."""
    said = [
        ("set aside", f"{one['at']} by {one['stage']}: {one['reason']}: {one['error']}")
        for one in found["dead_letters"]
    ]
    label = found.get("label")
    if label is None:
        return said
    history = [
        *(("came", _came(one)) for one in label["feedback"]),
        *(("forwarded", _forwarding(**one)) for one in found["forwarded"]),
        *(("joined", _as_joined(one)) for one in label["joined"]),
        ("counted", f"{label['counted']}: {label['why']}"),
    ]
    if "result" not in found:
        return [*said, ("query", "no result names it"), *history, *_waiting(label["waits"])]
    result, decision, draws = (found[name] for name in ("result", "decision", "draws"))
    asked = f"requested ({label['reason']})" if label["requested"] else "not requested"
    return [
        *said,
        ("query", result["text"]),
        *((role, _answer(result[role])) for role in ("small", "large")),
        ("decision", f"{decision['reason']}, answered by {decision['answered_by']}{_against(decision)}"),
        ("version", _version(decision, draws)),
        ("draws", _drawn(draws)),
        ("label", f"{asked}; {'open' if label['is_open'] else 'not open'} now"),
        *history,
    ]


def _waiting(waits: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Return what happens next to a label without a result, and what to check."""
    if waits is None:
        return []
    until = waits["until"] or "its retention ends"
    similar = f" (results are there of {', '.join(waits['similar_ids'])})" if waits["similar_ids"] else ""
    return [
        ("next", f"it counts once the result comes; if none does until {until}, it becomes a dead letter (no_result)"),
        ("check", f"the spelling of the id{similar}; whether the query is still to be answered (ucci-stream status)"),
    ]


def _forwarding(what: str, sent: str, place: str) -> str:
    topic, partition, _ = sent.rsplit("/", 2)
    home = place.rsplit("/", 2)[1]
    forwarded = f"the join forwarded it to partition {home} ({place})"
    return f"the {what} was sent to partition {partition} of {topic}; {forwarded}"


def _drawn(draws: Mapping[str, Any]) -> str:
    number = "by another key than router.draw_key" if draws["number"] is None else f"{draws['number']:.6f}"
    label, large = _below(draws["label_probability"]), draws["large_probability"]
    explored = f"explored {_below(draws['exploration_probability'])}"
    return f"{number}: {explored}, label requested {label}; the large model ran with probability {large:g}"


def _came(said: Mapping[str, Any]) -> str:
    """Return when a label was given; if its labeler does not say, when it arrived, by the join's record."""
    at = said["labelled_at"] or said["arrived_at"] or "at an unknown time"
    back = ", taken back" if said["retracted"] else ""
    place = f" ({said['place']})" if said["place"] else ""
    return f"{at} from {said['labeler'] or 'nobody named'}, revision {said['revision']}{back}{place}"


def _as_joined(one: Mapping[str, Any]) -> str:
    marks = {"withdrawn": one["retracted"], "by somebody trusted": one["trusted"], "disputed": one["disputed"]}
    return ", ".join([f"revision {one['revision']}", *(mark for mark, holds in marks.items() if holds)])


def _against(decision: Mapping[str, Any]) -> str:
    uncertainty, threshold = decision["uncertainty"], decision["uncertainty_threshold"]
    beside = "" if threshold is None else f", threshold {threshold:.5f}"
    return "" if uncertainty is None else f": u = {uncertainty:.5f}{beside}"


def _version(decision: Mapping[str, Any], draws: Mapping[str, Any]) -> str:
    number = decision["calibration_version"]
    if number is None:
        return "none was in force"
    if decision["version_made_at"] is None:
        return f"{number}, no longer in the history"
    unknown = "not repeatable" if draws["number"] is None else "not comparable"
    again = {True: "the same decision again", False: "another decision today", None: unknown}
    return (
        f"{number}, made {decision['version_made_at']} ({decision['version_trigger']}): {again[decision['repeatable']]}"
    )


def _below(probability: float | None) -> str:
    return "below an unknown bound" if probability is None else f"below {probability:g}"


def _answer(run: Mapping[str, Any] | None) -> str:
    if run is None:
        return "not called"
    return to_json(run["entities"]).decode() if run["valid"] else f"failed: {run['error']}"


def verdict_of(traces: Traces, signal: str, mark: str | None = None) -> Verdict:
    """Return whether a query's label counts."""
    if not traces.examples:
        return _before_the_join(traces)
    standing = max(traces.examples, key=lambda example: example.revision)
    status = traces.status
    aside = () if status is None else status.detail("labelers_set_aside").keys()
    if (why := _outside(standing, aside, signal, mark)) is not None:
        return "no", why
    if quarantined := None if status is None else status.detail("label_audit").get("quarantined"):
        return "unknown", f"some {quarantined} labels are taken for slips since an audit; it may be one"
    corrected = len({example.revision for example in traces.examples}) > 1
    return "yes", f"as {'last corrected' if corrected else 'joined'}, while it is among the latest labels"


def _outside(standing: LabelledExample, aside: Collection[str], signal: str, mark: str | None) -> str | None:
    """Return why a label that has reached the fit stays outside the estimates, or None; ``aside``: whose are."""
    reasons = (
        (standing.retracted, "it was withdrawn, or turned into a skip"),
        (not standing.is_counted, f"nobody has said what is right, only {standing.verdict!r} of the answer served"),
        (not standing.label_requested, "it was not requested: labels that people choose would bias the estimates"),
        (standing.signal != signal, f"u was measured by {standing.signal}, and the workload measures {signal} now"),
        (
            mark is not None and not is_of_basis(standing.basis, mark),
            "the answers were to another prompt, of other models or in other fields than are configured now",
        ),
        (
            standing.labeler in aside,
            f"labels of {standing.labeler} are set aside: they differ from everybody else's",
        ),
    )
    return next((why for holds, why in reasons if holds), None)


def _before_the_join(traces: Traces) -> Verdict:
    if not traces.feedback:
        is_requested = any(routed.label.requested for routed in traces.results[:1])
        return ("not yet" if is_requested else "no"), "no label has come in"
    if not (taken := [said.event for said in traces.taken]):
        reasons = {letter.reason: None for said in traces.feedback if (letter := traces.refusal(said)) is not None}
        return "no", f"it was set aside as a dead letter: {', '.join(reasons)}"
    if all(event.retracted or (event.entities is None and event.verdict is None) for event in taken):
        return "no", "labelers have skipped it, or taken their labels back"
    if not traces.results:
        return "not yet", "no result of this id has come, and the join keeps the label until one does"
    why = "look at its lag, and at dead letters; what join_retention_s or join_max_bytes has dropped meets no label"
    return "not yet", f"the join has not sent it to the fit: {why}"


_PARTS = re.compile(r"[^\W_]+")
#: A single word of so many characters is hardly the beginning of another id by chance.
_LONG_PART = 8


def is_similar(wanted: str, other: str) -> bool:
    """Return whether an id may be another spelling: of other case or signs, or with something before or after it.

    Examples
    --------
    >>> is_similar("Q-17 ", "q_17"), is_similar("q-17", "prod:q-17"), is_similar("q-17", "q-170")
    (True, True, False)
    """
    one, two = (_PARTS.findall(text.casefold()) for text in (wanted, other))
    if wanted == other or not one or not two:
        return False
    few, many = sorted((one, two), key=len)
    is_telling = len(few) > 1 or len(few[0]) >= _LONG_PART
    return "".join(one) == "".join(two) or (is_telling and few in (many[: len(few)], many[-len(few) :]))
