"""Why a query was answered as it was, and what became of its label: from the records that name it. Pure.

What the fit alone knows, such as which labels an audit has made count for less, is not in the topics one by one; where
that decides, the explanation says so rather than guess.
"""

from __future__ import annotations

import json
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
_SAID = ("labeler", "source", "labelled_at", "arrived_at", "revision", "retracted", "entities", "verdict")
_JOINED = ("revision", "labeler", "labelled_at", "retracted", "trusted", "disputed")


class Said(NamedTuple):
    """What a labeler has said, and when the broker got it, where that is known."""

    event: FeedbackEvent
    arrived_at: datetime | None = None


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


def explanation(
    query_id: str, traces: Traces, signal: str, mark: str | None = None, key: bytes | None = None
) -> dict[str, Any]:
    """Return everything about one query as JSON values. ``key``: of the routers' draws, by which alone they repeat."""
    found: dict[str, Any] = {
        "query_id": query_id,
        "results": len(traces.results),
        "dead_letters": [letter.document(whole=False) for letter in traces.letters],
    }
    if not traces.results:
        return found
    routed = traces.results[0]
    found["result"] = json.loads(routed.to_json())
    draws_by = drawn_as(query_id, key) if routed.drawn_with == mark_of(key) else None
    found["decision"] = _decision(routed, traces.version, draws_by)
    found["draws"] = _draws(routed, traces.version, draws_by)
    counted, why = verdict_of(traces, signal, mark)
    found["label"] = {
        "requested": routed.label.requested,
        "reason": routed.label.reason,
        "probability": routed.label.probability,
        "is_open": traces.is_open,
        "feedback": [_told(event, _SAID, arrived_at=at and rfc3339(at)) for event, at in traces.feedback],
        "joined": [_told(example, _JOINED) for example in traces.examples],
        "counted": counted,
        "why": why,
    }
    return found


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
    if "result" not in found:
        return said
    result, decision, draws, label = (found[name] for name in ("result", "decision", "draws", "label"))
    asked = f"requested ({label['reason']})" if label["requested"] else "not requested"
    return [
        *said,
        ("query", result["text"]),
        *((role, _answer(result[role])) for role in ("small", "large")),
        ("decision", f"{decision['reason']}, answered by {decision['answered_by']}{_against(decision)}"),
        ("version", _version(decision, draws)),
        ("draws", _drawn(draws)),
        ("label", f"{asked}; {'open' if label['is_open'] else 'not open'} now"),
        *(("came", _came(one)) for one in label["feedback"]),
        *(("joined", _as_joined(one)) for one in label["joined"]),
        ("counted", f"{label['counted']}: {label['why']}"),
    ]


def _drawn(draws: Mapping[str, Any]) -> str:
    number = "by another key than router.draw_key" if draws["number"] is None else f"{draws['number']:.6f}"
    label, large = _below(draws["label_probability"]), draws["large_probability"]
    explored = f"explored {_below(draws['exploration_probability'])}"
    return f"{number}: {explored}, label requested {label}; the large model ran with probability {large:g}"


def _came(said: Mapping[str, Any]) -> str:
    """Return when a label was given; if its labeler does not say, when it arrived, by the join's record."""
    at = said["labelled_at"] or said["arrived_at"] or "at an unknown time"
    back = ", taken back" if said["retracted"] else ""
    return f"{at} from {said['labeler'] or 'nobody named'}, revision {said['revision']}{back}"


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
    """Return whether the label of a query that has a result counts."""
    if not traces.examples:
        return _before_the_join([one.event for one in traces.feedback], is_requested=traces.results[0].label.requested)
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


def _before_the_join(feedback: Sequence[FeedbackEvent], *, is_requested: bool) -> Verdict:
    if not feedback:
        return ("not yet" if is_requested else "no"), "no label has come in"
    if all(event.retracted or (event.entities is None and event.verdict is None) for event in feedback):
        return "no", "labelers have skipped it, or taken their labels back"
    return "not yet", "the join has not sent it to the fit: look at its lag, and at dead letters"
