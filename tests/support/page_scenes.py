"""The pages in every state that they have to show, over the API without a broker: for tests in a browser, and pictures.

What a scene holds went in through the topics' records, a week of it; nothing is drawn by chance without a seed.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from html import unescape
from typing import Any, cast

from fastapi import FastAPI

from recalibrator.api.http_server import HttpServer
from schemas.calibration import CalibrationMap, Evidence, Interval, LargeOnly, Target
from schemas.costs import CostRate, expected_cost
from schemas.status import (
    CalibrationError,
    DelayQuantiles,
    DriftStatus,
    HappeningEvent,
    LabelerStatus,
    LabelStatus,
    LabelsWithoutResult,
    MeasuredMicroF1,
    ModelHealth,
    OutageStatus,
    ReliabilityBin,
    RouterStatus,
    Saving,
    StageStatus,
    UncertaintyHistogram,
    VersionInUse,
    WorkloadStatus,
)
from tests.support.api import START, Api, make_api
from tests.support.recalibrator_events import label_request
from tests.support.versions import sealed_version
from tests.support.workload_statuses import (
    BEGAN,
    COSTS,
    DEAR,
    DRIFTED,
    NOW,
    canary,
    curve,
    held,
    recalibrator,
    status,
)

FIELDS = ("camera", "lens", "iso", "aperture")
VERSIONS = 18
#: Queries of a workload by day; a fifth of it by night.
PER_SECOND = 4.0

TEXTS = (
    "canon eos 5d at night with 50 mm prime",
    "festival with canon 100 macro usm",
    "aperture 2.8 20s exposure milky way tracked",
    "135mm paris portrait street",
)
_UP = {
    "small": ModelHealth(state="up", calls=90_000, latency_s={"p50": 0.04, "p90": 0.08, "p99": 0.2}),
    "large": ModelHealth(state="up", calls=20_000, latency_s={"p50": 0.4, "p90": 0.9, "p99": 1.9}),
}
_LARGE_DOWN = _UP | {
    "large": ModelHealth(state="down", calls=20_400, failures=380, latency_s={"p50": 1.1, "p90": 12.0, "p99": 29.0})
}


@dataclass(frozen=True)
class State:
    """How one workload stands at the end of its week."""

    #: What the fit said last.
    status: WorkloadStatus
    #: What routers say of its servers now.
    models: Mapping[str, ModelHealth] = field(default_factory=lambda: dict(_UP))
    #: For how many hours nothing has come in, and no router has reported.
    quiet_h: float = 0.0
    routers_gone_h: float = 0.0
    #: Dead letters of the last hour.
    letters: int = 3
    #: Label requests that wait.
    requests: int = 4
    #: What keeps the join from its disk, or soon will; whether it goes on; and when the fit was last heard.
    trouble: str = ""
    joins: bool = True
    fit_heard: datetime = NOW
    #: When Kafka was last heard, where it no longer answers.
    kafka_heard: datetime | None = None
    #: What the join says of labels whose result has not come.
    without_result: LabelsWithoutResult | None = None


@dataclass(frozen=True)
class Scene:
    workloads: Mapping[str, State]
    path: str = "/"


def _active(**changes: Any) -> WorkloadStatus:
    slow = MeasuredMicroF1(estimate=0.911, lower=0.898, upper=0.924, labels=1_320, since=BEGAN)
    sentence = "Version 18 holds its target of micro-F1 0.91: estimated 0.913 (0.902 to 0.924)."
    return status(sentence=sentence, measured={"slow": slow}, **changes)


def _costing(escalation_rate: float, sequential: float, paper: float, saved: float) -> dict[str, Any]:
    """Return the parts of a status that say what it costs that so many queries escalate."""
    cost = CostRate(sequential=sequential, paper=paper, large_only=3.0)
    saving = Saving(sequential=1.0 - sequential / 3.0, paper=saved)
    return {"escalation_rate": escalation_rate, "cost": cost, "saving": saving}


def _cold() -> WorkloadStatus:
    return status(
        state="cold_start",
        sentence="Both models answer every query: a first version needs about 180 labels more.",
        labels=LabelStatus(received=120, requested=310, pending=190, effective=118.0, since=BEGAN),
        **_costing(1.0, 4.0, 3.0, 0.0),
        **dict.fromkeys(("calibration_version", "frontier", "version", "micro_f1")),
    )


def _infeasible() -> WorkloadStatus:
    return status(
        state="infeasible",
        details={"unreached_since": BEGAN.isoformat()},
        target=Target(micro_f1=0.95),
        frontier=curve(0.4),
        sentence="No threshold reaches micro-F1 0.95: queries escalate where it helps, for an estimated 0.913.",
        **_costing(0.4, 2.2, 1.8, 0.4),
    )


def _dear() -> WorkloadStatus:
    """Nearly all escalate, so that a query costs more than the large model alone."""
    version = DEAR.model_copy(update={"version": VERSIONS, "parent_version": VERSIONS - 1})
    return _active(frontier=curve(0.994), version=version, **_costing(0.99, 3.97, 2.98, 0.01))


def _large_only() -> WorkloadStatus:
    """The large model answers alone, since the cascade would cost more."""
    large_only = LargeOnly(small_probability=0.1, since=BEGAN, issued_by="ada")
    return _dear().model_copy(update={"large_only": large_only} | _costing(1.0, 3.1, 3.0, 0.0))


def _starved() -> WorkloadStatus:
    return status(
        state="label_starved",
        sentence="41 effective labels are too few to move the threshold; 300 are needed.",
        micro_f1=Interval(estimate=0.909, lower=0.861, upper=0.957),
        labels=LabelStatus(received=44, requested=1_000, pending=956, effective=41.0, since=BEGAN, per_hour=2.0),
        drift=DriftStatus(state="insufficient_labels"),
    )


def _outcomes(small: tuple[float, float], large: tuple[float, float], *alarmed: str) -> WorkloadStatus:
    """How often labels call either model wrong, before a change and since; these detectors alarm."""
    sides = {name: [was, 900, now, 160] for name, (was, now) in (("small", small), ("large", large))}
    one = DRIFTED.detectors[0]
    detectors = tuple(one.model_copy(update={"name": name, "watches": name.replace("_", " ")}) for name in alarmed)
    details = {"outcomes_changed": {"since": BEGAN.isoformat(), **sides}}
    return _active(drift=DriftStatus(state="drifted", detectors=detectors), details=details)


def _labels(**changes: Any) -> WorkloadStatus:
    labels = LabelStatus(received=900, requested=1_400, pending=500, effective=800.0, since=BEGAN)
    return _active(labels=labels, **changes)


_AUDIT = {"suspected": "errors_where_answers_agree", "since": BEGAN.isoformat(), "quarantined": 17}
_ASIDE = {"bob": {"labels": 41, "micro_f1": -0.05, "errors": 6.2, "since": BEGAN.isoformat()}}
_BUSY = ModelHealth(
    **(_UP["large"].model_dump() | {"overloaded": True, "queued": 42, "in_flight": 6, "concurrency_limit": 6})
)
#: The states of docs/results/states that have no scene of their own.
_OPERATED = {
    "large-slow": State(_active(), models=_UP | {"large": _BUSY}),
    "small-down": State(_active(), models=_UP | {"small": _LARGE_DOWN["large"]}),
    "models-down": State(_active(), models=dict.fromkeys(("small", "large"), _LARGE_DOWN["large"])),
    "disk-low": State(_active(), trouble="only 0.60 GB are left"),
    "disk-full": State(
        _active(),
        trouble="/var/lib/ucci/state/join.sqlite3: database or disk is full; nothing in it is lost",
        joins=False,
    ),
    "fit-gone": State(_active(), fit_heard=BEGAN, quiet_h=2.0),
    "kafka-away": State(_active(), kafka_heard=NOW - timedelta(seconds=40)),
    "small-worse": State(_outcomes((0.27, 0.52), (0.1, 0.11), "agreement", "label_residual")),
    "large-worse": State(_outcomes((0.27, 0.28), (0.1, 0.4), "agreement")),
    "labels-stop": State(_labels(state="stale", details={"last_label_at": BEGAN.isoformat()}), requests=24),
    "labeler-bad": State(_labels(details={"labelers_set_aside": _ASIDE})),
    "crowd-careless": State(_labels(state="bad_labels_suspected", details={"label_audit": _AUDIT})),
    "labels-without-result": State(
        _active(),
        without_result=LabelsWithoutResult(
            queries=17, oldest_at=BEGAN, last_hour=17, labels_last_hour=46, latest=("Doc-572", "Doc-570")
        ),
    ),
    "labels-one-sided": State(_labels(state="labels_one_sided", details={"silent_side": "kept"})),
}


WELL = State(_active())
OUTAGE = State(_active(outage=OutageStatus(large_failing=0.8)), models=_LARGE_DOWN, letters=40)
DRIFT = State(_active(drift=DRIFTED))
PINNED = State(_active(state="pinned", commands=held("activate")))

#: Every page, and every state that it has to show.
SCENES: dict[str, Scene] = {
    "well": Scene({"photo-search": State(_active(trial=canary(VERSIONS, content_of=5)))}),
    "outage": Scene({"photo-search": OUTAGE}),
    "drift": Scene({"photo-search": DRIFT}),
    "infeasible": Scene({"photo-search": State(_infeasible())}),
    "cold-start": Scene({"photo-search": State(_cold())}),
    "nothing-yet": Scene({}),
    "label-starvation": Scene({"photo-search": State(_starved(), requests=24)}),
    "quiet": Scene({"photo-search": State(_active(), quiet_h=7.0)}),
    "routers-gone": Scene({"photo-search": State(_active(), quiet_h=7.0, routers_gone_h=7.0)}),
    "workloads": Scene(
        {"photo-search": WELL, "receipts": OUTAGE, "invoices": PINNED, "support-tickets": DRIFT, "contracts": WELL}
    ),
    "dear": Scene({"photo-search": State(_dear())}),
    **{name: Scene({"photo-search": state}) for name, state in _OPERATED.items()},
    "large-only": Scene({"photo-search": State(_large_only())}),
    "large-only-form": Scene({"photo-search": WELL}, "/confirm?workload=photo-search&action=large_only"),
    "versions": Scene({"photo-search": WELL}, "/workloads/photo-search/versions"),
    "label-form": Scene({"photo-search": WELL}, "/workloads/photo-search/label"),
    "label-form-empty": Scene({"photo-search": State(_active(), requests=0)}, "/workloads/photo-search/label"),
    "roll-back": Scene({"photo-search": WELL}, "/confirm?workload=photo-search&action=activate&version=5"),
    "canary": Scene({"photo-search": WELL}, "/confirm?workload=photo-search&action=canary&version=5"),
}


def filled(scene: Scene, missing: Sequence[str] = ()) -> Api:
    """Return the API with the scene in its topics, at :data:`~tests.support.workload_statuses.NOW`."""
    api = make_api(missing, workloads=tuple(scene.workloads) or ("photo-search",), workload={"fields": FIELDS})
    api.clock.advance((NOW - START).total_seconds())
    for name, state in scene.workloads.items():
        _fill_statuses(api, name, state)
        _fill_versions(api, name, state)
        _fill_letters(api, name, state.letters)
        _fill_requests(api, name, state.requests)
        _fill_happenings(api, name, state.status)
    if scene.workloads:
        _fill_routers(api, scene.workloads)
        counts = (("ada", 512, 480), ("bob", 301, 260), (None, 87, 60))
        known = tuple(
            LabelerStatus(labeler=who, labels=n, compared=n // 4, agreeing=n // 5, unanimous=same, confirmed=same - 9)
            for who, n, same in counts
        )
        said = next(iter(scene.workloads.values()))
        stages = {"join": StageStatus(ready=said.joins, trouble=said.trouble)}
        join: dict[str, Any] = {"labelers": dict.fromkeys(scene.workloads, known), "stages": stages}
        if said.without_result is not None:
            join |= {"labels_without_result": said.without_result, "records_forwarded": {"ucci.feedback": 120}}
        api.tell(
            recalibrator(NOW, "join").model_copy(update=join),
            recalibrator(said.fit_heard, "fit").model_copy(update={"instance_id": "fit-1"}),
        )
        if said.kafka_heard is not None:
            api.kafka.append(api.kafka[0]._replace(at=said.kafka_heard, is_away=True))
    return api


def first_sentence(scene: Scene) -> str:
    page = filled(scene).client.get(scene.path).text
    found = re.search(r'<p class="what">(.*?)</p>', page, re.DOTALL)
    assert found is not None, "the page has no first sentence"
    return unescape(re.sub("<[^>]*>", "", found.group(1)))


@contextmanager
def served(scene: Scene) -> Iterator[str]:
    missing: list[str] = []
    server = HttpServer(cast(FastAPI, filled(scene, missing).client.app), "127.0.0.1", 0)
    server.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        # Streams of changes end by themselves then.
        missing.append("closing")
        server.close()


def _moments(until: datetime) -> list[datetime]:
    """Return a week of times, the closer the nearer to its end."""
    return [until - timedelta(minutes=n) for n in (*range(7 * 1_440, 18 * 20, -20), *range(6 * 60, -1, -2))]


def _by_day(at: datetime) -> float:
    """Return how busy it is, in [0.2, 1]: by night there are few queries."""
    return 0.6 - 0.4 * math.cos(2.0 * math.pi * (at.hour + at.minute / 60.0 - 3.0) / 24.0)


def _fill_statuses(api: Api, name: str, state: State) -> None:
    ends_at = NOW - timedelta(hours=state.quiet_h)
    total = dict.fromkeys(("small", "large", "degraded"), 0.0)
    last, was = None, status()
    moments = [at for at in _moments(ends_at) if state.status.calibration_version is not None or at >= BEGAN]
    for n, at in enumerate(moments):
        hours = (ends_at - at).total_seconds() / 3_600.0
        rate = 0.15 + 0.02 * math.sin(hours / 5.0) + 0.004 * math.sin(7.0 * hours)
        if at >= BEGAN and state.status.state in ("infeasible", "cold_start"):
            rate = state.status.escalation_rate or rate
        elapsed_s = 0.0 if last is None else (at - last).total_seconds()
        answered = elapsed_s * PER_SECOND * _by_day(at)
        lost = 0.8 if state.models["large"].state == "down" and at >= BEGAN else 0.0
        for kind, share in (("small", 1.0 - rate), ("large", rate * (1.0 - lost)), ("degraded", rate * lost)):
            total[kind] += answered * share
        last = at
        is_now = (at >= BEGAN and state.status.state != "active") or n == len(moments) - 1
        micro_f1 = 0.913 + 0.004 * math.sin(hours / 11.0) + 0.0006 * math.sin(9.0 * hours)
        changes: dict[str, Any] = {
            "workload": name,
            "updated_at": at,
            "calibration_version": None if state.status.calibration_version is None else _version_at(at),
            "sentence": state.status.sentence.replace(f"Version {VERSIONS}", f"Version {_version_at(at)}"),
            "queries": int(sum(total.values())),
            "details": state.status.details | {"served": _served(total)},
        }
        if not is_now:
            changes |= {
                "micro_f1": Interval(estimate=micro_f1, lower=micro_f1 - 0.011, upper=micro_f1 + 0.011),
                "escalation_rate": rate,
                "drift": state.status.drift if at >= BEGAN else was.drift,
                "outage": state.status.outage if at >= BEGAN else None,
            }
        one = state.status if is_now else was
        if n == len(moments) - 1:
            changes |= _evidence(state.status)
        api.tell(one.model_copy(update=changes))


def _served(total: Mapping[str, float]) -> dict[str, float]:
    counts: dict[str, float] = {kind: int(count) for kind, count in total.items()}
    queries, asked = sum(counts.values()), counts["large"] + counts["degraded"]
    calls = {"small_calls": queries, "large_calls": asked}
    return counts | calls | {"small_latency_s": 0.05 * queries, "large_latency_s": 0.5 * asked}


def _evidence(said: WorkloadStatus) -> dict[str, Any]:
    """Return what a status of a running workload holds beside its state."""
    delay_s, per_hour = DelayQuantiles(p50=40.0, p90=300.0), said.labels.per_hour or 120.0
    labels = said.labels.model_copy(update={"per_hour": per_hour, "requested_share": 0.05, "delay_s": delay_s})
    if said.state == "cold_start":
        return {"labels": labels}
    bins = tuple(
        ReliabilityBin(predicted=0.05 + 0.1 * n, observed=min(1.0, 0.04 + 0.1 * n), count=count)
        for n, count in enumerate((90, 74, 61, 55, 48, 40, 31, 22, 15, 9))
    )
    ece, brier = Interval(estimate=0.021, lower=0.015, upper=0.03), Interval(estimate=0.08, lower=0.07, upper=0.09)
    often = (0.2, 0.15, 0.12, 0.1, 0.08, 0.06, 0.05, 0.04, 0.04, 0.03)
    seldom = (0.03, 0.02, 0.02, 0.02, 0.01, 0.01, 0.01, 0.005, 0.003, 0.002)
    return {
        "labels": labels,
        "calibration_error": CalibrationError(ece=ece, brier=brier, bins=bins),
        "per_field": {"camera": 0.95, "lens": 0.89, "iso": 0.97, "aperture": 0.93},
        "uncertainty": UncertaintyHistogram(edges=tuple(n / 20 for n in range(21)), share=(*often, *seldom)),
        "uncertainty_threshold": 0.31,
    }


def _made_at(version: int) -> datetime:
    return BEGAN - timedelta(hours=9 * (VERSIONS - version))


def _version_at(at: datetime) -> int:
    return max(1, bisect_right(range(1, VERSIONS + 1), at, key=_made_at))


def _latest(state: State) -> int:
    return _version_at(NOW - timedelta(hours=state.quiet_h))


def _fill_versions(api: Api, name: str, state: State) -> None:
    if state.status.calibration_version is None:
        return
    for number in range(1, _latest(state) + 1):
        trigger = {1: "bootstrap", 2: "first_fit", 9: "activate"}.get(number, "threshold_moved")
        rate = 0.15 + 0.01 * (number % 4)
        version = sealed_version(
            workload=name,
            version=number,
            created_at=_made_at(number),
            map=CalibrationMap(uncertainty=(0.1, 0.9), error_probability=(0.05 + number / 500.0, 0.8)),
            uncertainty_threshold=0.31 + number % 5 / 100.0,
            parent_version=number - 1 or None,
            evidence=Evidence(
                trigger="drift" if number % 6 == 5 else trigger,
                labels=400 + number * 20,
                micro_f1=Interval(estimate=0.912, lower=0.9, upper=0.92),
                escalation_rate=rate,
                expected_cost=expected_cost(COSTS, rate),
                drift_state="ok",
                details={"content_of": 5} if number == 9 else {},
            ),
        )
        at_ms = int(version.created_at.timestamp() * 1_000)
        api.cache.take("ucci.calibration-history", f"{name}:{number}".encode(), version.to_json(), at_ms)


def _fill_letters(api: Api, name: str, count: int) -> None:
    error = b"both models failed: small: HTTP 500; large: timed out after 30 s"
    for n in range(count):
        headers = {
            "dlq.stage": b"router",
            "dlq.reason": (b"models_failed", b"not_json", b"missing_field")[0 if n % 5 else n % 3],
            "dlq.error": error,
            "dlq.topic": b"ucci.queries",
            "dlq.partition": b"1",
            "dlq.offset": str(7 * n).encode(),
        }
        api.letters.take(name.encode(), b"{", headers, int((NOW - timedelta(minutes=n)).timestamp() * 1_000))


def _fill_requests(api: Api, name: str, count: int) -> None:
    for n in range(count):
        changes = {
            "query_id": f"{name}-{n}",
            "workload": name,
            "text": TEXTS[n % len(TEXTS)],
            "entities": {"camera": "Canon EOS 5D", "lens": ("50 mm", "85 mm"), "iso": None, "aperture": "f/2.8"},
            "other_entities": {"camera": "Canon EOS 5D Mark IV", "iso": "a very/long-winded-value-that-nobody-breaks"},
            "requested_at": NOW - timedelta(minutes=9 + n),
        }
        api.tell(label_request(n, **changes))


def _fill_happenings(api: Api, name: str, said: WorkloadStatus) -> None:
    """Have a detector alarm and fall silent, somebody act, and what began two hours ago begin."""
    told = [
        (200, "alarm", "Drift is suspected: uncertainty tail", True),
        (150, "alarm_over", "Drift is suspected no longer", False),
        (140, "act", "ada: refit, version 17", False),
    ]
    if said.outage is not None:
        told.append((120, "outage", "The large model fails on 80% of calls", True))
    if said.drift.state == "drifted":
        told.append((120, "alarm", "Drift is suspected: uncertainty", True))
    for minutes, kind, sentence, is_bad in told:
        at = NOW - timedelta(minutes=minutes)
        api.tell(HappeningEvent(workload=name, at=at, kind=kind, sentence=sentence, is_bad=is_bad))


def _fill_routers(api: Api, workloads: Mapping[str, State]) -> None:
    gone_h = max(state.routers_gone_h for state in workloads.values())
    in_use = {
        name: VersionInUse(version=None if state.status.calibration_version is None else _latest(state))
        for name, state in workloads.items()
    }
    for place, at in enumerate(_moments(NOW - timedelta(hours=gone_h))):
        models = {
            name: _reported(state.models if at >= BEGAN else _UP, 1 + place if state.quiet_h == 0.0 else 1)
            for name, state in workloads.items()
            if state.status.calibration_version is not None or at >= BEGAN
        }
        for number in (1, 2):
            one = RouterStatus(
                instance_id=f"router-{number}",
                started_at=NOW - timedelta(days=8),
                updated_at=at,
                ready=True,
                versions=in_use,
                models=cast(Any, models),
                in_flight=3,
                lag={"0": 0 if any(state.quiet_h for state in workloads.values()) else 2},
            )
            api.cache.take("ucci.routers", one.instance_id.encode(), one.to_json())


def _reported(models: Mapping[str, ModelHealth], more_calls: int) -> dict[str, ModelHealth]:
    """Return what a router says of its servers after so many calls more, a little faster or slower each time."""
    found = {}
    for role, health in models.items():
        factor = 1.0 + 0.12 * math.sin(more_calls * more_calls)
        latency_s = {name: factor * value for name, value in health.latency_s.items()}
        found[role] = health.model_copy(update={"calls": health.calls + more_calls, "latency_s": latency_s})
    return found
