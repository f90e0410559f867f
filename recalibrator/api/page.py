"""The page: the view flows in, HTML flows out. Everything is made here; nothing is loaded from another host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from threading import Lock

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from recalibrator.api.plots import escalation_plot, quality_plot, reliability_plot
from recalibrator.api.routes_status import unseen
from recalibrator.api.view import VersionLine, View
from schemas.event import rfc3339
from schemas.settings import Settings
from schemas.status import RouterStatus, WorkloadStatus

SHOWN_VERSIONS = 20

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


@dataclass(frozen=True, slots=True)
class Figures:
    """The drawings of one workload."""

    quality: Markup
    escalation: Markup
    reliability: Markup


@dataclass(frozen=True, slots=True)
class Panel:
    """What the template shows of one workload."""

    status: WorkloadStatus
    tone: str
    versions: Sequence[VersionLine]
    figures: Figures
    saving: float | None


class Page:
    """Makes the page; drawings are kept until what they show has changed.

    Parameters
    ----------
    settings : Settings
    view : View
    """

    def __init__(self, settings: Settings, view: View) -> None:
        self._settings = settings
        self._view = view
        self._lock = Lock()
        self._drawn: dict[str, tuple[object, Figures]] = {}
        self._environment = Environment(
            loader=PackageLoader("recalibrator.api"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
        )
        self._environment.filters |= {"time": _time, "percent": _percent, "number": _number}

    def overview(self) -> str:
        """Return the page of all workloads."""
        panels = [self._panel(name) for name in self._view.workloads]
        return self._environment.get_template("page.html").render(
            panels=panels, routers=self._view.routers(), router_models=_router_models
        )

    def confirmation(self, workload: str, action: str, version: int | None, *, needs_key: bool, problem: str) -> str:
        """Return the page on which a person confirms a command."""
        return self._environment.get_template("confirm.html").render(
            workload=workload, action=action, version=version, needs_key=needs_key, problem=problem
        )

    def _panel(self, workload: str) -> Panel:
        status = self._view.status(workload) or unseen(self._settings.workloads[workload])
        cost = status.cost
        return Panel(
            status=status,
            tone=TONES[status.state],
            versions=self._view.versions(workload)[:SHOWN_VERSIONS],
            figures=self._figures(workload, status),
            saving=None if cost is None or not cost.large_only else 1.0 - cost.sequential / cost.large_only,
        )

    def _figures(self, workload: str, status: WorkloadStatus) -> Figures:
        key = (status.updated_at, status.calibration_version)
        with self._lock:
            known = self._drawn.get(workload)
        if known is not None and known[0] == key:
            return known[1]
        points = self._view.points(workload)
        drawn = Figures(
            quality=Markup(quality_plot(points, status.target.micro_f1)),  # noqa: S704 drawn here, of numbers only
            escalation=Markup(escalation_plot(points)),  # noqa: S704
            reliability=Markup(reliability_plot(status)),  # noqa: S704
        )
        with self._lock:
            self._drawn[workload] = (key, drawn)
        return drawn


def _router_models(router: RouterStatus) -> list[tuple[str, str, str]]:
    """Return (server, health, median latency) of each model that a router talks to."""
    return [
        (f"{workload}/{role}", health.state, _number(health.latency_s.get("p50"), 3))
        for workload, roles in sorted(router.models.items())
        for role, health in sorted(roles.items(), reverse=True)
    ]


def _time(moment: datetime | None) -> str:
    return "–" if moment is None else rfc3339(moment.replace(microsecond=0))


def _percent(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{value:.{digits}%}"


def _number(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
