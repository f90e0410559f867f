"""The Grafana dashboard, made from one table of panels, so that every query in it can be checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

_COLUMNS = 24
_ROW_HEIGHT = 8
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_W = 'workload=~"$workload"'


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel."""

    title: str
    #: As Grafana names it.
    unit: str
    #: PromQL by legend.
    queries: dict[str, str]
    #: ``stat`` shows the last value alone.
    kind: Literal["timeseries", "stat"] = "timeseries"
    #: What to look for, shown on the panel.
    text: str = ""


def _quantile(share: float, metric: str, by: str, selector: str = "") -> str:
    return f"histogram_quantile({share}, sum by (le, {by}) (rate({metric}_bucket{{{selector}}}[$__rate_interval])))"


def _rate(metric: str, by: str, selector: str = "") -> str:
    return f"sum by ({by}) (rate({metric}{{{selector}}}[$__rate_interval]))"


def _hourly(metric: str, by: str, selector: str = "") -> str:
    return f"sum by ({by}) (increase({metric}{{{selector}}}[1h]))"


def _status(name: str, *by: str) -> str:
    # Every process that runs the API shows the same.
    return f"max by ({', '.join(('workload', *by))}) (ucci_workload_{name}{{{_W}}})"


ROWS: dict[str, tuple[Panel, ...]] = {
    "The promise": (
        Panel(
            "micro-F1",
            "percentunit",
            {
                "{{workload}}": _status("micro_f1"),
                "{{workload}}, 95% from": _status("micro_f1_lower"),
                "{{workload}}, to": _status("micro_f1_upper"),
                "served by {{workload}}, {{window}}": _status("measured_micro_f1", "window"),
                "served by {{workload}}, {{window}}, at most": _status("measured_micro_f1_upper", "window"),
                "target of {{workload}}": _status("micro_f1_target"),
            },
            text="Expected of the version in force, and measured of what was served, over a fast and a slow window.",
        ),
        Panel(
            "Escalated",
            "percentunit",
            {
                "{{workload}}": _status("escalation_rate"),
                "{{limit}} binds, {{workload}}": _status("target_binds", "limit"),
            },
            text="And what keeps it where it is (100%), for workloads with more than a target on micro-F1.",
        ),
        Panel(
            "Saved against large only", "percentunit", {"{{workload}} {{accounting}}": _status("saving", "accounting")}
        ),
        Panel("State", "none", {"{{workload}} {{state}}": f"{_status('state', 'state')} > 0"}),
        Panel("Drift", "none", {"{{workload}} {{state}}": f"{_status('drift_state', 'state')} > 0"}),
    ),
    "Queries": (
        Panel("Results", "reqps", {"{{answered_by}}": _rate("ucci_router_results_total", "answered_by", _W)}),
        Panel("Why", "reqps", {"{{reason}}": _rate("ucci_router_results_total", "reason", _W)}),
        Panel(
            "Backlog",
            "short",
            {
                "waiting or being answered": "sum(ucci_router_backlog)",
                "in flight": "sum(ucci_router_in_flight)",
                "answered, not committed": "sum(ucci_router_uncommitted)",
            },
        ),
        Panel(
            "Processes that are ready",
            "short",
            {
                "routers and gateways": "sum(ucci_router_ready)",
                "{{stage}}": "sum by (stage) (ucci_recalibrator_ready)",
                "scraped": 'sum(up{job=~".*(ucci|router|recalibrator).*"})',
                "hear Kafka": "sum(time() - ucci_kafka_contact_timestamp_seconds < bool 30)",
            },
        ),
    ),
    "Gateways": (
        Panel(
            "Requests by HTTP status",
            "reqps",
            {
                "{{job}} {{status}}": _rate("ucci_router_gateway_requests_total", "job, status"),
            },
            text="429: more than a gateway takes at a time, or over a caller's quota; 499: the caller left.",
        ),
        Panel(
            "Time to an answer, p50 and p99",
            "s",
            {
                "p50 {{workload}}": _quantile(0.5, "ucci_router_gateway_request_seconds", "workload", _W),
                "p99 {{workload}}": _quantile(0.99, "ucci_router_gateway_request_seconds", "workload", _W),
            },
        ),
    ),
    "Models": (
        Panel(
            "Up, and overloaded",
            "bool_yes_no",
            {
                "{{workload}} {{role}} up": f"min by (workload, role) (ucci_router_model_up{{{_W}}})",
                "{{workload}} {{role}} overloaded": f"max by (workload, role) (ucci_router_model_overloaded{{{_W}}})",
            },
        ),
        Panel(
            "Call time, p50 and p99",
            "s",
            {
                "p50 {{role}}": _quantile(0.5, "ucci_router_model_call_seconds", "role", _W),
                "p99 {{role}}": _quantile(0.99, "ucci_router_model_call_seconds", "role", _W),
            },
        ),
        Panel(
            "Concurrency and its limit",
            "short",
            {
                "in flight {{role}}": f"sum by (role) (ucci_router_model_in_flight{{{_W}}})",
                "limit {{role}}": f"sum by (role) (ucci_router_model_concurrency_limit{{{_W}}})",
                "queued {{role}}": f"sum by (role) (ucci_router_model_queued{{{_W}}})",
            },
        ),
        Panel(
            "Calls not answered",
            "reqps",
            {
                "{{role}} {{outcome}}": _rate(
                    "ucci_router_model_calls_total", "role, outcome", f'{_W}, outcome!="answered"'
                )
            },
        ),
    ),
    "Calibration and labels": (
        Panel(
            "Version in force",
            "short",
            {"{{workload}} {{instance}}": f"ucci_router_calibration_version{{{_W}}}"},
            text="All routers on one line.",
        ),
        Panel(
            "Versions published",
            "short",
            {"{{trigger}}": f"sum by (trigger) (increase(ucci_recalibrator_versions_total{{{_W}}}[1h]))"},
        ),
        Panel(
            "Versions refused",
            "short",
            {"{{reason}}": "sum by (reason) (increase(ucci_router_calibrations_rejected_total[1h]))"},
        ),
        Panel(
            "Label requests",
            "short",
            {
                "open": "sum(ucci_recalibrator_label_requests_open)",
                "{{outcome}} an hour": _hourly("ucci_recalibrator_label_requests_total", "outcome", _W),
            },
        ),
        Panel(
            "Labels an hour, and those behind the estimate",
            "short",
            {"{{workload}}": _status("labels_per_hour"), "effective {{workload}}": _status("labels_effective")},
        ),
        Panel(
            "Labels asked for and come, a day",
            "short",
            {
                "asked {{workload}}": f"max by (workload) (increase(ucci_workload_labels_requested_total{{{_W}}}[1d]))",
                "come {{workload}}": f"max by (workload) (increase(ucci_workload_labels_received_total{{{_W}}}[1d]))",
            },
        ),
        Panel(
            "Age of the version, and of the status",
            "s",
            {
                "version of {{workload}}": f"time() - {_status('calibration_timestamp_seconds')}",
                "status of {{workload}}": f"time() - {_status('status_timestamp_seconds')}",
            },
        ),
    ),
    "Kafka": (
        Panel(
            "Transactions",
            "ops",
            {
                "router {{outcome}}": _rate("ucci_router_transactions_total", "outcome"),
                "{{stage}} {{outcome}}": _rate("ucci_recalibrator_transactions_total", "stage, outcome"),
            },
        ),
        Panel(
            "Transaction time, p99",
            "s",
            {
                "{{instance}}": _quantile(0.99, "ucci_router_transaction_seconds", "instance"),
                "{{stage}}": _quantile(0.99, "ucci_recalibrator_transaction_seconds", "stage"),
            },
        ),
        Panel("Stages behind", "s", {"{{stage}} {{topic}}": "max by (stage, topic) (ucci_recalibrator_lag_seconds)"}),
        Panel("Free on the join's disk", "bytes", {"{{instance}}": "ucci_recalibrator_disk_free_bytes"}),
        Panel(
            "Rebalances and client errors",
            "short",
            {
                "router {{kind}}": "sum by (kind) (increase(ucci_router_rebalances_total[1h]))",
                "{{stage}} {{kind}}": "sum by (stage, kind) (increase(ucci_recalibrator_rebalances_total[1h]))",
                "error {{code}}": "sum by (code) (increase(ucci_router_client_errors_total[1h]))",
            },
        ),
        Panel(
            "Dead letters, and records lost, an hour",
            "short",
            {
                "router {{reason}}": "sum by (reason) (increase(ucci_router_dead_letters_total[1h]))",
                "{{stage}} {{reason}}": "sum by (stage, reason) (increase(ucci_recalibrator_dead_letters_total[1h]))",
                "lost by routers": "sum(increase(ucci_router_records_lost_total[1h]))",
                "lost by {{stage}}": "sum by (stage) (increase(ucci_recalibrator_records_lost_total[1h]))",
                "labels without a result": "sum(ucci_recalibrator_labels_without_result)",
                "labels joined": 'sum(increase(ucci_recalibrator_examples_total{retracted="false"}[1h]))',
            },
        ),
    ),
}


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": title,
                "collapsed": False,
                "panels": [],
                "gridPos": {"x": 0, "y": y, "w": _COLUMNS, "h": 1},
            }
        )
        y += 1
        width = _COLUMNS // len(row)
        for column, panel in enumerate(row):
            place = {"x": column * width, "y": y, "w": width, "h": _ROW_HEIGHT}
            panels.append(_panel(len(panels) + 1, panel, place))
        y += _ROW_HEIGHT
    return {
        "uid": "ucci-stream",
        "title": "ucci-stream",
        "tags": ["ucci-stream"],
        "schemaVersion": 39,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": panels,
    }


def queries() -> list[str]:
    """Return every query of every panel."""
    return [query for row in ROWS.values() for panel in row for query in panel.queries.values()]


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": _DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": _DATASOURCE, "expr": query, "legendFormat": legend}
            for at, (legend, query) in enumerate(panel.queries.items())
        ],
    }


def _variables() -> list[dict[str, Any]]:
    return [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "refresh": 1},
        {
            "name": "workload",
            "label": "Workload",
            "type": "query",
            "datasource": _DATASOURCE,
            "query": {"query": "label_values(ucci_router_results_total, workload)", "refId": "workload"},
            "refresh": 2,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        },
    ]
