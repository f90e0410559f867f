"""The page for people: HTML made of the read model. Nothing on it is loaded from another host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import JsonValue

from recalibrator.api.pages.svg_figures import Figures, FigureStore
from recalibrator.api.read_model.dead_letter_log import DeadLetter, DeadLetterLog
from recalibrator.api.read_model.status_documents import StatusDocuments
from recalibrator.api.read_model.topic_cache import TopicCache
from recalibrator.api.read_model.version_lines import VersionLine, changes
from recalibrator.labelling.budget import LabelBudget, label_budget
from recalibrator.labelling.queue import LabelQueue, QueuePage
from schemas.event import rfc3339
from schemas.settings import Settings
from schemas.status import WorkloadStatus

SHOWN_VERSIONS = 20
SHOWN_LETTERS = 20
SHOWN_REQUESTS = 8

TONES = {
    "active": "good",
    "pinned": "calm",
    "paused": "calm",
    "cold_start": "calm",
    "infeasible": "bad",
    "label_starved": "warn",
    "stale": "warn",
    "bad_labels_suspected": "bad",
}
"""How each state is coloured; the word itself is always shown too."""

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
}
"""What each act is called, and what it does."""

UNTIL_REFIT = "until_refit"
"""In the form of a roll-back: it does not hold, the next fit may replace it."""

_NAMES = {
    "uncertainty_threshold": "threshold on u",
    "threshold": "error probability there",
    "escalation_rate": "escalates",
    "exploration": "explores",
    "micro_f1": "micro-F1",
    "sequential_cost": "cost, sequential",
}
_SHARES = frozenset({"escalation_rate", "exploration"})


@dataclass(frozen=True, slots=True)
class VersionRow:
    """A line of the versions' table and what it changed, each as name, before, after."""

    line: VersionLine
    changed: Sequence[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class WorkloadPanel:
    """What the template shows of one workload."""

    status: WorkloadStatus
    tone: str
    versions: Sequence[VersionRow]
    hidden_versions: int
    figures: Figures
    letters: Sequence[DeadLetter]
    queue: QueuePage
    budget: LabelBudget


class Page:
    """Makes the page.

    Parameters
    ----------
    settings : Settings
    cache : TopicCache
    letters : DeadLetterLog
    documents : StatusDocuments
    queue : LabelQueue
    """

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
        self._environment = Environment(
            loader=PackageLoader("recalibrator.api.pages"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {
            "time": _time,
            "iso": _iso,
            "percent": _percent,
            "number": _number,
            "words": _words,
            "segment": _segment,
        }
        self._environment.globals |= {"tones": TONES, "actions": ACTIONS, "until_refit": UNTIL_REFIT}

    def overview(self, now: datetime) -> str:
        """Return the page of all workloads; that of the workload where there is but one."""
        if len(self._cache.workloads) == 1:
            return self.workload(self._cache.workloads[0], now)
        statuses = [self._documents.workload(name, now) for name in self._cache.workloads]
        return self._render("overview.html", now, statuses=statuses)

    def workload(self, workload: str, now: datetime, asked: str = "", version: int | None = None) -> str:
        """Return the page of one workload.

        Parameters
        ----------
        asked : str
            The act that was just requested, to be confirmed on the page.
        version : int, optional
            Its version.
        """
        return self._render("workload.html", now, panel=self._panel(workload, now), asked=asked, asked_version=version)

    def confirmation(
        self, workload: str, action: str, version: int | None, now: datetime, *, needs_key: bool, problem: str
    ) -> str:
        """Return the page on which a person confirms a command."""
        current = self._cache.line(workload, self._documents.workload(workload, now).calibration_version)
        wanted = self._cache.line(workload, version)
        changed = [] if wanted is None or wanted is current else _changed(changes(wanted, current))
        return self._render(
            "confirm.html",
            now,
            workload=workload,
            action=action,
            version=version,
            changed=changed,
            current=current,
            needs_key=needs_key,
            problem=problem,
        )

    def _render(self, template: str, now: datetime, **content: object) -> str:
        return self._environment.get_template(template).render(
            now=now,
            workloads=self._cache.workloads,
            recalibrators=[one.status for one in self._cache.recalibrators()],
            routers=[one.status for one in self._cache.routers()],
            **content,
        )

    def _panel(self, workload: str, now: datetime) -> WorkloadPanel:
        status = self._documents.workload(workload, now)
        lines = self._cache.versions(workload)
        return WorkloadPanel(
            status=status,
            tone=TONES[status.state],
            versions=[
                VersionRow(line, _changed(changes(line, self._cache.line(workload, line.parent_version))))
                for line in lines[:SHOWN_VERSIONS]
            ],
            hidden_versions=max(0, len(lines) - SHOWN_VERSIONS),
            figures=self._figures.of(status),
            letters=self._letters.latest(workload, SHOWN_LETTERS),
            queue=self._queue.page(workload, now, SHOWN_REQUESTS),
            budget=label_budget(status),
        )


def _changed(changed: dict[str, tuple[JsonValue, JsonValue]]) -> list[tuple[str, str, str]]:
    return [
        (_NAMES.get(name, _words(name)), _value(name, before), _value(name, after))
        for name, (before, after) in changed.items()
    ]


def _value(name: str, value: JsonValue) -> str:
    if isinstance(value, float):
        return _percent(value) if name in _SHARES else _number(value, 4)
    return "–" if value is None else str(value)


def _words(value: str) -> str:
    return value.replace("_", " ")


def _segment(name: str) -> str:
    """Encode a name for a segment of a path: a slash within it would end the segment."""
    return quote(name, safe="")


def _time(moment: datetime | None) -> str:
    return "–" if moment is None else moment.strftime("%d %b %H:%M:%S")


def _iso(moment: datetime | None) -> str:
    return "" if moment is None else rfc3339(moment.replace(microsecond=0))


def _percent(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{100.0 * value:.{digits}f} %"


def _number(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
