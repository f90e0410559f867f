"""The page for people: HTML made of the read model. Nothing on it is loaded from another host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from pydantic import JsonValue

from recalibrator.api.pages.html_environment import environment, number, percent, words
from recalibrator.api.pages.panels import deciding, letter_groups, strip, traffic, version_groups
from recalibrator.api.pages.svg_plots import SPAN, FigureStore, sparklines
from recalibrator.api.read_model.dead_letter_log import MOST_KEPT, DeadLetterLog
from recalibrator.api.read_model.status_documents import StatusDocuments
from recalibrator.api.read_model.topic_cache import TopicCache
from recalibrator.api.read_model.version_lines import changes, last_that_held, visible_moves
from recalibrator.headlines.facts import SILENT_AFTER, in_force, traffic_span
from recalibrator.headlines.label_plan import plan_lines
from recalibrator.headlines.rules import alarm_since, urgency
from recalibrator.headlines.without_result import forwarded_line, look_up, waiting_line
from recalibrator.labelling.queue import LabelQueue
from schemas.settings import Settings
from schemas.status import WORRYING, HappeningEvent, Headline, WorkloadStatus

SHOWN_GROUPS = 12
SHOWN_REQUESTS = 3
SHOWN_HAPPENINGS = 20
_HOUR = timedelta(hours=1)

#: What each act is called, and what it does.
ACTIONS = {
    "activate": (
        "Roll back",
        "Its content is published again under a new number and decides at once, until the workload is unpinned.",
    ),
    "pin": ("Pin", "It decides until it is unpinned, whatever later labels say. New fits are made, not published."),
    "unpin": ("Unpin", "New fits decide again."),
    "pause": ("Pause", "No new version is published until resumed; the one in force stays."),
    "resume": ("Resume", "New fits are published again."),
    "refit": ("Refit", "A version is fitted on the labels so far and published at once."),
    "shadow": (
        "Shadow",
        "Routers compute and report what it would decide, and go on by the version in force. A trial under way ends.",
    ),
    "canary": (
        "Canary",
        "It decides the share of queries given below, drawn by a hash of their ids. A trial under way ends.",
    ),
    "promote": ("Promote", "The version on trial is published under a new number and decides every query at once."),
    "stop_trial": ("Stop trial", "The version in force decides every query again; what was compared stays shown."),
    "large_only": (
        "Large only",
        "The small model is asked of a drawn share of queries alone, which shows when the cascade pays again.",
    ),
    "end_large_only": ("Back to the cascade", "The small model answers first again, at once."),
    "believe": (
        "Believe",
        "This person's labels count at once, and are no longer compared with other people's. Audits are for others.",
    ),
    "compare_again": (
        "Compare again",
        "This person's labels are compared with other people's again, and set aside where they differ.",
    ),
}

#: What each detector watches, for people; others say it themselves.
DETECTORS = {
    "agreement": "how often both models give the same answer",
    "uncertainty_median": "how unsure the small model usually is",
    "uncertainty_tail": "how often the small model is very unsure",
    "label_residual": "how often labelled answers are wrong, against the forecast",
    "error_given_agreement": "how often labels contradict two models that agree",
    "right_given_disagreement": "how often labels side with the small model against the large one",
}

DETECTED = {
    "ok": "as before",
    "suspected": "may have changed",
    "drifted": "has changed",
    "insufficient_labels": "too few labels to tell",
    "stale": "no labels to tell by",
}

#: In the form of a roll-back: it does not hold, the next fit may replace it.
UNTIL_REFIT = "until_refit"

_NAMES = {
    "uncertainty_threshold": "threshold on u",
    "threshold": "error probability there",
    "escalation_rate": "escalates",
    "exploration": "explores",
    "micro_f1": "micro-F1",
    "sequential_cost": "cost, sequential",
}
_SHARES = frozenset({"escalation_rate", "exploration"})

#: Headlines that cast no doubt on what earlier versions were fitted by.
_NO_DOUBT = frozenset({"dear", "escalation_jump", "labels_without_result", "dead_letters"})


class Page:
    """Makes the page."""

    def __init__(
        self,
        settings: Settings,
        cache: TopicCache,
        letters: DeadLetterLog,
        documents: StatusDocuments,
        queue: LabelQueue,
    ) -> None:
        self._settings = settings
        self._cache = cache
        self._letters = letters
        self._documents = documents
        self._queue = queue
        self._figures = FigureStore(cache)
        self._environment = environment(
            actions=ACTIONS,
            detectors=DETECTORS,
            detected=DETECTED,
            until_refit=UNTIL_REFIT,
            changed=_changed,
            spark_hours=SPAN // _HOUR,
        )

    def overview(self, now: datetime) -> str:
        """Return the page of all workloads; that of the workload, with its charts, where there is but one."""
        if len(self._cache.workloads) == 1:
            return self.workload(self._cache.workloads[0], now)
        rows = []
        for name in self._cache.workloads:
            status = self._documents.workload(name, now)
            does = in_force(status, self._documents.headlines.facts(status, now))
            rows.append((status, _said(status), does, traffic(self._cache.points(name), now), deciding(status)))
        rows.sort(key=lambda row: urgency(row[1]))
        troubled = sum(row[1].severity in WORRYING for row in rows)
        letters = letter_groups(self._letters.status(None, now), self._letters.latest(None, MOST_KEPT))
        return self._render("overview.html", now, rows=rows, troubled=troubled, letters=letters)

    def workload(self, workload: str, now: datetime, asked: str = "", version: int | None = None) -> str:
        """Return the page of one workload. ``asked``: the act that was just requested, to be confirmed on the page."""
        return self._render("workload.html", now, panel=self._panel(workload, now), asked=asked, asked_version=version)

    def versions(self, workload: str, now: datetime) -> str:
        """Return the page of all versions of a workload."""
        status, lines = self._documents.workload(workload, now), self._cache.versions(workload)
        current = deciding(status)
        groups = version_groups(lines, (current, status.on_trial), SHOWN_GROUPS)
        hidden = len(lines) - sum(len(group.rows) for group in groups)
        shown = {"current": current, "trial": status.on_trial, "groups": groups, "hidden": hidden}
        return self._render("versions.html", now, workload=workload, **shown)

    def confirmation(
        self, workload: str, action: str, version: int | None, now: datetime, **shown: bool | str | None
    ) -> str:
        """Return the page on which a person confirms a command; ``shown``: needs_key, problem and labeler."""
        current = self._cache.line(workload, deciding(self._documents.workload(workload, now)))
        wanted = self._cache.line(workload, version)
        changed = [] if wanted is None or wanted is current else _changed(changes(wanted, current))
        asked = {"workload": workload, "action": action, "version": version}
        return self._render("confirm.html", now, **asked, changed=changed, current=current, **shown)

    def _render(self, template: str, now: datetime, **content: object) -> str:
        heard = self._documents.headlines.heard()
        return self._environment.get_template(template).render(
            now=now,
            # Since when nothing on the page is new.
            stale_since=heard.at if heard is not None and heard.is_away else None,
            workloads=self._cache.workloads,
            recalibrators=[one.status for one in self._cache.recalibrators()],
            routers=[one.status for one in self._cache.routers()],
            **content,
        )

    def _panel(self, workload: str, now: datetime) -> dict[str, object]:
        status = self._documents.workload(workload, now)
        facts, current = self._documents.headlines.facts(status, now), deciding(status)
        first, happened = _said(status), self._cache.happened(workload)
        lines, points = self._cache.versions(workload), self._cache.points(workload)
        live = [one for one in facts.recalibrators or () if facts.heard_until - one.updated_at <= SILENT_AFTER]
        moved = {
            one.created_at: f"Version {one.version} escalates {percent(one.escalation_rate, 0)}"
            for one in visible_moves(lines)
        }
        in_doubt = first.severity in WORRYING and first.kind not in _NO_DOUBT
        return {
            "status": status,
            "headline": first,
            "strip": tuple(strip(status, facts.recalibrators or (), facts.heard_until)),
            "deciding": current,
            "alarm_since": alarm_since(status),
            "in_force": in_force(status, facts),
            "fitted": self._cache.line(workload, current),
            "held": None if in_doubt else last_that_held(lines, current),
            "span": traffic_span(status),
            "prices_tokens": facts.prices_tokens,
            "versions": len(lines),
            "figures": self._figures.of(status),
            "sparklines": sparklines(points, status.target.micro_f1, now, happened, moved),
            "happened": happened[: -SHOWN_HAPPENINGS - 1 : -1],
            "aside": _set_aside(status, happened),
            "believed": status.details.get("labelers_believed") or (),
            "latest": _latest_by_labeler(status),
            "waiting": waiting_line(status.labels.without_result, now),
            "look_up": look_up(status.labels.without_result),
            "forwarded": forwarded_line(live, self._settings.topics.prefix),
            "trusted": self._settings.workloads[workload].trusted_labelers,
            "traffic": traffic(points, now),
            "letters": letter_groups(status.dead_letters, self._letters.latest(workload, MOST_KEPT)),
            "queue": self._queue.page(workload, now, SHOWN_REQUESTS),
            "plan": () if status.label_plan is None else plan_lines(status.label_plan),
        }


def _said(status: WorkloadStatus) -> Headline:
    assert status.headline is not None, "it is filled in where a status is served"
    return status.headline


def _latest_by_labeler(status: WorkloadStatus) -> dict[str, JsonValue]:
    """Return, of each labeler's latest labels, how many agree with both models, and of how many."""
    return {
        name: counted
        for name, counted in status.detail("labelers_latest").items()
        if isinstance(counted, list) and [type(one) for one in counted] == [int, int]
    }


def _set_aside(status: WorkloadStatus, happened: Sequence[HappeningEvent]) -> dict[str | None, datetime | None]:
    """Return the labelers who are set aside, and since when as far as that was kept."""
    began = {one.labeler: one.at for one in happened if one.kind == "set_aside"}
    return {name: began.get(name) for name in status.detail("labelers_set_aside")}


def _changed(changed: Mapping[str, tuple[object, object]]) -> list[tuple[str, str, str]]:
    """Return what changed as words: each as name, before, after."""
    return [
        (_NAMES.get(name, words(name)), _value(name, before), _value(name, after))
        for name, (before, after) in changed.items()
    ]


def _value(name: str, value: object) -> str:
    if isinstance(value, float):
        return percent(value) if name in _SHARES else number(value, 4)
    return "–" if value is None else str(value)
