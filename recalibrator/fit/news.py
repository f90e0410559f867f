"""What an operator should read of what the fit does: two statuses → what has changed between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime

from pydantic import JsonValue

from recalibrator.stage import News
from schemas.calibration import HIGHEST_VERSION, CalibrationVersion
from schemas.status import ALARMED, BAD_STATES, HappeningEvent, WorkloadStatus

_MOST_NAMED = 20

_WHATEVER_THE_FACTS = {
    "model outage over": ("outage_over", "The models answer again"),
    "bad labels suspected": ("audit", "Labels may be wrong: an audit begins"),
    "the large model answers alone": ("large_only", "The large model answers alone: the cascade costs more"),
    "the cascade answers again": ("large_only_over", "The cascade answers again"),
}


def published_news(versions: Iterable[CalibrationVersion]) -> Iterator[News]:
    """Yield a line a workload about the versions that were committed: how many there were and why."""
    by_workload: dict[str, list[CalibrationVersion]] = {}
    for version in versions:
        by_workload.setdefault(version.workload, []).append(version)
    for workload, made in by_workload.items():
        last, triggers = made[-1], Counter(one.evidence.trigger for one in made)
        yield _news(
            "calibration published",
            workload,
            versions=len(made),
            last=last.version,
            state=last.state,
            uncertainty_threshold=last.uncertainty_threshold,
            triggers=dict(triggers),
        )


def _news(what: str, workload: str, *, is_bad: bool = False, **facts: JsonValue) -> News:
    return News(what, {"workload": workload, **facts}, is_bad=is_bad)


def status_news(before: WorkloadStatus, after: WorkloadStatus) -> Iterator[News]:
    """Yield what has changed from one status of a workload to the next."""
    name, state, drift = after.workload, after.state, after.drift.state
    if state != before.state:
        is_bad = state in BAD_STATES
        yield _news("workload state", name, is_bad=is_bad, state=state, before=before.state, sentence=after.sentence)
    if drift != before.drift.state:
        alarmed: list[JsonValue] = [one.name for one in after.drift.detectors if one.state in ALARMED]
        is_bad = drift in ALARMED
        yield _news("drift state", name, is_bad=is_bad, state=drift, before=before.drift.state, detectors=alarmed)
    yield from _label_news(before, after)
    yield from _labeler_news(before, after)
    if (before.outage is None) is not (after.outage is None):
        shares = {} if after.outage is None else after.outage.model_dump()
        yield _news("model outage" if shares else "model outage over", name, is_bad=bool(shares), **shares)
    if after.large_only is not None and before.large_only is None and not after.large_only.issued_by:
        yield _news("the large model answers alone", name)
    if before.large_only is not None and after.large_only is None:
        yield _news("the cascade answers again", name)
    for one in after.commands:
        if one not in before.commands:
            what = "command refused" if one.is_refused else "command applied"
            facts = {fact: getattr(one, fact) for fact in ("action", "note", "version", "issued_by")}
            yield _news(what, name, is_bad=one.is_refused, **facts)


def _label_news(before: WorkloadStatus, after: WorkloadStatus) -> Iterator[News]:
    """Yield what people have found out about suspected labels."""
    was, audit = before.detail("label_audit"), after.detail("label_audit")
    if (suspected := audit.get("suspected")) is not None and was.get("suspected") is None:
        yield _news("bad labels suspected", after.workload, is_bad=True, suspected=suspected, since=audit.get("since"))
    if (last := audit.get("last")) is not None and was.get("last") != last and isinstance(last, dict):
        facts = {**last, "quarantined": audit.get("quarantined")}
        yield _news("suspected labels judged", after.workload, is_bad=last.get("verdict") == "refuted", **facts)


def _labeler_news(before: WorkloadStatus, after: WorkloadStatus) -> Iterator[News]:
    """Yield whose labels are set aside from now on, and whose count again."""
    names_before, names = (set(one.detail("labelers_set_aside")) for one in (before, after))
    for name in sorted(names - names_before)[:_MOST_NAMED]:
        yield _news("labels of a labeler set aside", after.workload, is_bad=True, labeler=name)
    for name in sorted(names_before - names)[:_MOST_NAMED]:
        yield _news("labels of a labeler count again", after.workload, labeler=name)


def number_ignored(workload: str, number: int) -> News:
    """Return the line about a foreign version whose number no version of ours could follow."""
    what = "foreign version ignored: its number leaves no room for the next ones"
    return _news(what, workload, is_bad=True, version=number, highest=HIGHEST_VERSION)


def happening(news: News, at: datetime) -> HappeningEvent | None:
    """Return a line of the log as an event that is kept; None where charts need not show it.

    Examples
    --------
    >>> from datetime import UTC
    >>> happening(News("model outage over", {"workload": "photo"}), datetime(2026, 1, 1, tzinfo=UTC)).kind
    'outage_over'
    """
    facts, found = news.facts, _WHATEVER_THE_FACTS.get(news.event)
    match news.event:
        case "model outage":
            failing = {role: float(str(facts[f"{role}_failing"])) for role in ("small", "large")}
            role = max(failing, key=lambda one: failing[one])
            found = "outage", f"The {role} model fails on {failing[role]:.0%} of calls"
        case "drift state" if facts["state"] in ALARMED and facts["before"] not in ALARMED:
            alarmed = facts["detectors"]
            names = ", ".join(str(one).replace("_", " ") for one in alarmed) if isinstance(alarmed, list) else ""
            found = "alarm", f"Drift is suspected{f': {names}' if names else ''}"
        case "drift state" if facts["before"] in ALARMED and facts["state"] not in ALARMED:
            found = "alarm_over", "Drift is suspected no longer"
        case "suspected labels judged":
            found = "audit_over", f"The audit's verdict: the suspected labels are {facts.get('verdict')}"
        case "labels of a labeler set aside":
            found = "set_aside", f"Labels of {facts['labeler']} are set aside"
        case "labels of a labeler count again":
            found = "set_aside_over", f"Labels of {facts['labeler']} count again"
        case "command applied":
            came = "" if facts["version"] is None else f", version {facts['version']}"
            found = "act", f"{facts['issued_by']}: {facts['note']}{came}"
    if found is None:
        return None
    labeler = facts.get("labeler")
    return HappeningEvent(
        workload=str(facts["workload"]),
        at=at,
        kind=found[0],
        sentence=found[1],
        is_bad=news.is_bad,
        labeler=labeler if isinstance(labeler, str) else None,
    )
