"""`/metrics` and the status say the same, and no record on a topic can make series without bound."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from recalibrator import metrics as recalibrator_metrics
from schemas.status import ModelHealth
from stream_router import prometheus_metrics as router_metrics
from tests.support.api import START, WORKLOAD, Api, make_api, plain_router, plain_status
from tests.support.versions import sealed_version

ROOT = Path(__file__).parents[3]
INTERVAL = {"estimate": 0.91, "lower": 0.88, "upper": 0.93}
DETECTOR = {"watches": "errors", "needs_labels": True, "statistic": 9.0, "bound": 5.0}
LABELS = {"requested": 90, "received": 70, "effective": 61.5, "pending": 20, "per_hour": 12.0, "requested_share": 0.07}
ASIDE = {"bob": {"labels": 5, "micro_f1": 0.1, "errors": 4.0}}
STATUS: dict[str, Any] = {
    "calibration_version": 3,
    "uncertainty_threshold": 0.25,
    "target": {"micro_f1": 0.9},
    "micro_f1": INTERVAL,
    "measured": {name: INTERVAL | {"labels": n, "since": START} for name, n in (("fast", 300), ("slow", 900))},
    "per_field": {"camera": 0.95},
    "escalation_rate": 0.3,
    "cost": {"sequential": 1.9, "paper": 1.6, "large_only": 3.0},
    "saving": {"sequential": 0.36, "paper": 0.46},
    "labels": LABELS | {"delay_s": {"p50": 60.0, "p90": 600.0}},
    "drift": {"state": "drifted", "detectors": [{"name": "errors", "state": "drifted", "alarms": 2} | DETECTOR]},
    "calibration_error": {"ece": INTERVAL, "brier": INTERVAL},
    "queries": 1_000,
    "details": {"labels_overruled": 4, "label_audit": {"quarantined": 11}, "labelers_set_aside": ASIDE},
    "outage": {"small_failing": 0.0, "large_failing": 0.4},
}
MODELS = {"small": ModelHealth(state="up", overloaded=True, calls=9), "large": ModelHealth(state="down")}

Scraped = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
def api() -> Api:
    api, lag = make_api(), {"lag": {"0": 40}, "lag_s": {"0": 7.5}}
    api.tell(sealed_version(workload=WORKLOAD, version=3), plain_status(**STATUS))
    for number, version in enumerate((3, 2, 2)):
        api.tell(plain_router(f"router-{number}", version, models={WORKLOAD: MODELS}, **lag))
    return api


def scraped(api: Api) -> Scraped:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(api.client.get("/metrics").text)
        for sample in family.samples
    }


def value(found: Scraped, name: str, **labels: str) -> float:
    return found[f"ucci_workload_{name}", tuple(sorted({"workload": WORKLOAD, **labels}.items()))]


def test_metrics_say_what_the_status_says(api: Api) -> None:
    found = scraped(api)
    numbers = {
        "micro_f1": 0.91,
        "micro_f1_lower": 0.88,
        "micro_f1_upper": 0.93,
        "micro_f1_target": 0.9,
        "escalation_rate": 0.3,
        "calibration_error_lower": 0.88,
        "queries_total": 1_000.0,
        "labels_received_total": 70.0,
        "labels_effective": 61.5,
        "labels_per_hour": 12.0,
        "labelers_set_aside": 1.0,
        "calibration_version": 3.0,
        "status_timestamp_seconds": START.timestamp(),
        "routers_on_other_version": 2.0,
    }
    assert {name: value(found, name) for name in numbers} == numbers
    assert value(found, "measured_micro_f1_upper", window="slow") == 0.93
    assert value(found, "measured_labels", window="fast") == 300.0
    assert value(found, "state", state="active") == 1.0
    assert value(found, "state", state="stale") == 0.0
    assert value(found, "saving", accounting="sequential") == 0.36
    assert value(found, "label_delay_seconds", percentile="p90") == 600.0
    assert value(found, "labels_set_aside", why="audit") == 11.0
    assert value(found, "labels_set_aside", why="labeler") == 5.0
    assert value(found, "labels_not_counted_total", why="overruled") == 4.0
    assert value(found, "detector_state", detector="errors", state="drifted") == 1.0
    assert value(found, "model_failing", role="large") == 0.4
    assert value(found, "model_servers", role="large", state="down") == 3.0
    assert value(found, "model_servers_overloaded", role="small") == 3.0
    assert found["ucci_backlog_records", (("topic", "queries"),)] == 120.0


def test_what_alerts_rest_on_is_scraped(api: Api) -> None:
    """Every name in an alert's expression stands in the scrape, or in the tables of what the services count."""
    api.letters.take(None, b"{}", {"dlq.stage": b"join", "dlq.reason": b"not_json"}, int(START.timestamp() * 1_000))
    counted = {spec.exposed for spec in (*recalibrator_metrics.SPECS, *router_metrics.SPECS)}
    known = counted | {name for name, _ in scraped(api)}
    rules = (ROOT / "deploy/monitoring/rules.yml").read_text(encoding="utf-8")
    wanted = {name for line in rules.splitlines() if "alert:" not in line for name in re.findall(r"\bucci_\w+", line)}
    wanted.remove("ucci_workload_target_binds")  # of targets with a limit, which this one has not
    assert {re.sub("_(bucket|sum|count)$", "", name) for name in wanted} <= known
    ours = {name for name in wanted if name.startswith(("ucci_workload_", "ucci_backlog_"))}
    assert set() < ours <= {name for name, _ in scraped(api)}


def test_what_is_not_known_has_no_sample() -> None:
    """Before the first label nothing is quoted: an alert on quality must not fire on a made-up number."""
    found = scraped(make_api())
    assert value(found, "state", state="cold_start") == 1.0
    assert value(found, "calibration_version") == 0.0
    names = {name for name, _ in found}
    assert not names & {"ucci_workload_micro_f1", "ucci_workload_cost", "ucci_workload_calibration_timestamp_seconds"}


def test_hostile_dead_letters_make_no_series_of_their_own(api: Api) -> None:
    for number in range(300):
        headers = {"dlq.stage": f"stage-{number}".encode(), "dlq.reason": f"reason_{number}".encode()}
        api.letters.take(None, b"{}", headers, int(START.timestamp() * 1_000))
    letters = {labels: count for (name, labels), count in scraped(api).items() if name == "ucci_workload_dead_letters"}
    assert len(letters) <= 21
    assert sum(letters.values()) == 300.0


def test_metrics_say_what_was_promised_and_what_binds(api: Api) -> None:
    """A cap, a budget and fields with targets of their own have series; a target without micro_f1 has none of that."""
    promised = {"micro_f1": 0.9, "max_escalation": 0.4, "fields": {"camera": 0.8}}
    standing = {"binds": "max_escalation", "wanted_escalation": 0.52, "fields": {"camera": INTERVAL}}
    api.tell(plain_status(**STATUS | {"target": promised, "standing": standing}))
    found = scraped(api)
    assert (value(found, "escalation_cap"), value(found, "escalation_wanted")) == (0.4, 0.52)
    assert value(found, "field_micro_f1_target", field="camera") == 0.8
    binds = {limit: value(found, "target_binds", limit=limit) for limit in ("micro_f1", "max_escalation", "cost")}
    assert binds == {"micro_f1": 0.0, "max_escalation": 1.0, "cost": 0.0}
    assert value(found, "target_binds", limit="fields.camera") == 0.0

    spent = {"binds": "cost", "budget": {"allowed": 1.71, "realised": 1.698, "queries": 10_000}}
    api.tell(plain_status(**STATUS | {"target": {"cost": 1.7}, "standing": spent}))
    found = scraped(api)
    assert (value(found, "cost_target"), value(found, "cost_realised")) == (1.7, 1.698)
    assert not any(name == "ucci_workload_micro_f1_target" for name, _ in found)
