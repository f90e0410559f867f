"""What an operator should read in the log of what the fit does: two statuses → what has changed between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pydantic import JsonValue

from recalibrator.stage import News
from schemas.calibration import HIGHEST_VERSION, CalibrationVersion
from schemas.status import BAD_STATES, WorkloadStatus

Facts = dict[str, JsonValue]

_BAD_DRIFT = frozenset({"suspected", "drifted"})
_MOST_NAMED = 20


class PublishedVersions:
    """The versions published since the last line, by workload: a line says how many there were and why."""

    def __init__(self) -> None:
        self._triggers: dict[str, Counter[str]] = {}
        self._last: dict[str, CalibrationVersion] = {}

    def add(self, version: CalibrationVersion) -> None:
        """Take a version that was committed."""
        self._triggers.setdefault(version.workload, Counter())[version.evidence.trigger] += 1
        self._last[version.workload] = version

    def take(self) -> Iterator[News]:
        """Yield a line a workload, and begin again."""
        counted, self._triggers = self._triggers, {}
        for workload, triggers in counted.items():
            last = self._last[workload]
            facts: Facts = {
                "workload": workload,
                "versions": triggers.total(),
                "last": last.version,
                "state": last.state,
                "uncertainty_threshold": last.uncertainty_threshold,
                "triggers": dict(triggers),
            }
            yield News("calibration published", facts)


def status_news(before: WorkloadStatus, after: WorkloadStatus) -> Iterator[News]:
    """Yield what has changed from one status of a workload to the next."""
    workload = after.workload
    if after.state != before.state:
        facts: Facts = {"workload": workload, "state": after.state, "before": before.state, "sentence": after.sentence}
        yield News("workload state", facts, is_bad=after.state in BAD_STATES)
    if after.drift.state != before.drift.state:
        alarmed: list[JsonValue] = [one.name for one in after.drift.detectors if one.state in _BAD_DRIFT]
        facts = {"workload": workload, "state": after.drift.state, "before": before.drift.state, "detectors": alarmed}
        yield News("drift state", facts, is_bad=after.drift.state in _BAD_DRIFT)
    yield from _label_news(before, after)
    yield from _labeler_news(before, after)
    yield from _outage_news(before, after)
    yield from _command_news(before, after)


def _label_news(before: WorkloadStatus, after: WorkloadStatus) -> Iterator[News]:
    """Yield what people have found out about suspected labels."""
    was, audit = before.details.get("label_audit"), after.details.get("label_audit")
    if not isinstance(audit, dict):
        return
    was = was if isinstance(was, dict) else {}
    if (suspected := audit.get("suspected")) is not None and was.get("suspected") is None:
        facts: Facts = {"workload": after.workload, "suspected": suspected, "since": audit.get("since")}
        yield News("bad labels suspected", facts, is_bad=True)
    if (last := audit.get("last")) is not None and was.get("last") != last and isinstance(last, dict):
        facts = {"workload": after.workload, **last, "quarantined": audit.get("quarantined")}
        yield News("suspected labels judged", facts, is_bad=last.get("verdict") == "refuted")


def _labeler_news(before: WorkloadStatus, after: WorkloadStatus) -> Iterator[News]:
    """Yield whose labels are set aside from now on, and whose count again."""
    was, now = (one.details.get("labelers_set_aside") for one in (before, after))
    names_before, names = (set(one) if isinstance(one, dict) else set[str]() for one in (was, now))
    for name in sorted(names - names_before)[:_MOST_NAMED]:
        yield News("labels of a labeler set aside", {"workload": after.workload, "labeler": name}, is_bad=True)
    for name in sorted(names_before - names)[:_MOST_NAMED]:
        yield News("labels of a labeler count again", {"workload": after.workload, "labeler": name})


def _outage_news(before: WorkloadStatus, after: WorkloadStatus) -> Iterator[News]:
    if (before.outage is None) is (after.outage is None):
        return
    outage = after.outage
    facts: Facts = {"workload": after.workload}
    if outage is None:
        yield News("model outage over", facts)
    else:
        shares: Facts = {"small_failing": outage.small_failing, "large_failing": outage.large_failing}
        yield News("model outage", facts | shares, is_bad=True)


def _command_news(before: WorkloadStatus, after: WorkloadStatus) -> Iterator[News]:
    """Yield what became of operators' commands, with who issued them."""
    for one in after.commands:
        if one in before.commands:
            continue
        facts: Facts = {
            "workload": after.workload,
            "action": one.action,
            "note": one.note,
            "version": one.version,
            "issued_by": one.issued_by,
        }
        yield News("command refused" if one.is_refused else "command applied", facts, is_bad=one.is_refused)


def number_ignored(workload: str, number: int) -> News:
    """Return the line about a foreign version whose number no version of ours could follow."""
    facts: Facts = {"workload": workload, "version": number, "highest": HIGHEST_VERSION}
    return News("foreign version ignored: its number leaves no room for the next ones", facts, is_bad=True)
